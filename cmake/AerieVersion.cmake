# Records the git revision and the compiler for `--version`; version.cpp is the only file that is rebuilt when they change.
set(AERIE_GIT_REVISION unknown)
set(AERIE_GIT_DIRTY false)
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE AERIE_GIT_REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} status --porcelain --untracked-files=no WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE _dirty ERROR_QUIET)
  if(_dirty)
    set(AERIE_GIT_DIRTY true)
  endif()
endif()

# Test helpers: labels, rank lists and time-outs in one place. A test that needs more ranks than the machine has cores
# runs oversubscribed; it is never dropped.

# aerie_add_test(NAME SOURCES file... LINKS target... [LABEL unit] [TIMEOUT 20] [TORCH])          -> unit.NAME
function(aerie_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "LABEL;TIMEOUT" "SOURCES;LINKS")
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 20)
  endif()
  add_executable(test_${arg_LABEL}_${name} ${arg_SOURCES})
  target_link_libraries(test_${arg_LABEL}_${name} PRIVATE ${arg_LINKS} aerie_test_support aerie_strict GTest::gtest GTest::gtest_main)
  if(arg_TORCH)
    aerie_use_torch_pch(test_${arg_LABEL}_${name})
  endif()
  add_test(NAME ${arg_LABEL}.${name} COMMAND test_${arg_LABEL}_${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${arg_LABEL}.${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()

# aerie_add_mpi_test(NAME SOURCES file... LINKS target... RANKS 1 2 4 [TIMEOUT 20] [TORCH])       -> mpi.NAME.1 .2 .4
# The test's main is tests/support/mpi_main.cpp: rank 0 prints, failures of other ranks are gathered.
function(aerie_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "TIMEOUT" "SOURCES;LINKS;RANKS")
  if(NOT arg_RANKS)
    message(FATAL_ERROR "aerie_add_mpi_test(${name}): RANKS is empty")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 20)
  endif()
  add_executable(test_mpi_${name} ${arg_SOURCES})
  target_link_libraries(test_mpi_${name} PRIVATE ${arg_LINKS} aerie_mpi_test_main aerie_test_support aerie_strict GTest::gtest)
  if(arg_TORCH)
    aerie_use_torch_pch(test_mpi_${name})
  endif()
  separate_arguments(flags UNIX_COMMAND "${AERIE_MPIEXEC_FLAGS}")
  foreach(n IN LISTS arg_RANKS)
    add_test(NAME mpi.${name}.${n} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${n} ${flags} $<TARGET_FILE:test_mpi_${name}>)
    set_tests_properties(mpi.${name}.${n} PROPERTIES LABELS "mpi;ranks_${n}" PROCESSORS ${n} TIMEOUT ${arg_TIMEOUT}
      ENVIRONMENT "OMP_NUM_THREADS=1;OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_hwloc_base_binding_policy=none")
  endforeach()
endfunction()

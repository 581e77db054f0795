# Finds what aerie is built from. Nothing is downloaded here; scripts/setup.sh installs what is missing.
find_package(Threads REQUIRED)

set(MPI_CXX_SKIP_MPICXX ON)  # without it every file that includes mpi.h drags in the old C++ bindings
find_package(MPI REQUIRED COMPONENTS CXX)

set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 REQUIRED COMPONENTS C)
if(NOT TARGET aerie::hdf5)
  add_library(aerie_hdf5 INTERFACE)
  add_library(aerie::hdf5 ALIAS aerie_hdf5)
  target_include_directories(aerie_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS} ${HDF5_INCLUDE_DIRS})
  target_link_libraries(aerie_hdf5 INTERFACE ${HDF5_C_LIBRARIES} ${HDF5_LIBRARIES})
  if(HDF5_IS_PARALLEL)
    target_link_libraries(aerie_hdf5 INTERFACE MPI::MPI_CXX)  # its headers include mpi.h
  endif()
endif()

find_package(CLI11 REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(fmt REQUIRED CONFIG)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
add_library(aerie_tomlplusplus INTERFACE)
add_library(aerie::tomlplusplus ALIAS aerie_tomlplusplus)
target_include_directories(aerie_tomlplusplus SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE_DIR})

find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(aerie_xxhash INTERFACE)
add_library(aerie::xxhash ALIAS aerie_xxhash)
target_include_directories(aerie_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_link_libraries(aerie_xxhash INTERFACE ${XXHASH_LIBRARY})

if(AERIE_CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "host compiler of nvcc")
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the one that LibTorch has loaded
  # Of what nvcc's link line would add only the toolkit's folders: its host compiler's may hold a static libstdc++, which would then
  # stand beside the one that LibTorch loads, and programs would abort at exit.
  set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
  list(FILTER CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES INCLUDE REGEX "cuda")
  find_package(CUDAToolkit REQUIRED)
  find_package(NCCL REQUIRED)
endif()
if(AERIE_LIBTORCH)
  find_package(LibTorch 2.11.0 REQUIRED)
endif()
if(AERIE_TESTS)
  find_package(GTest REQUIRED)
endif()

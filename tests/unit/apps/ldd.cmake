# Fails when PROGRAM loads LibTorch, CUDA or NCCL.
execute_process(COMMAND ldd ${PROGRAM} OUTPUT_VARIABLE libraries RESULT_VARIABLE rc)
if(NOT rc EQUAL 0 OR NOT libraries MATCHES "libmpi")
  message(FATAL_ERROR "ldd ${PROGRAM} gave ${rc}: ${libraries}")
endif()
if(libraries MATCHES "torch|libc10|cuda|cudart|nccl|not found")
  message(FATAL_ERROR "${PROGRAM} must not load this: ${libraries}")
endif()

// SPDX-License-Identifier: Apache-2.0
// NCCL for preflight: of builds with CUDA (preflight_nccl_cuda.cpp), of the others there is none (preflight_nccl_none.cpp).
#pragma once
#include <aerie/preflight/preflight.hpp>

namespace aerie::apps {
/// Null in builds without CUDA. Each rank works on the GPU that it would train on; the first communicator that it is opened for
/// must hold all ranks.
preflight::OpenNetwork nccl_network();
}  // namespace aerie::apps

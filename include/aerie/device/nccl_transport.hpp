// SPDX-License-Identifier: Apache-2.0
// Transport over NCCL: device buffers, int64 sums, one CUDA stream. CUDA builds only; the header names no CUDA type.
// Every rank needs a GPU of its own (NCCL refuses two ranks on one device).
#pragma once
#include <memory>

#include <c10/core/Device.h>

#include <aerie/comm/comm.hpp>
#include <aerie/comm/transport.hpp>

namespace aerie::device {

/// Collective over `comm`, which is needed only here, to hand round NCCL's id. The work goes to `stream` (a cudaStream_t; null:
/// LibTorch's current stream of `device`). Throws PeerError when the communicator is not up after `deadline_s` seconds, and
/// from any later call once NCCL reports an asynchronous error; the communicator is aborted then, and otherwise finalized
/// and destroyed by the destructor.
std::unique_ptr<comm::Transport> make_nccl_transport(const comm::Comm& comm, c10::Device device, double deadline_s = 120.0,
                                                     void* stream = nullptr);

}  // namespace aerie::device

// SPDX-License-Identifier: Apache-2.0
// What a phase will ask of the nodes, from configuration, target, dataset, store and checkpoints; and the libraries that the
// programs beside this one would load here.
#pragma once
#include <map>
#include <string>

#include <aerie/config/config.hpp>
#include <aerie/preflight/preflight.hpp>

namespace aerie::apps {

/// `phase`: extract, train, eval, export, verify, or empty for none. `on_gpu`: the phase will compute on GPUs. Inputs that are
/// missing or damaged are not judged here (the phase does): what cannot be told is zero. Throws ConfigError for another phase.
/// Local; reads headers and manifests only.
preflight::Needs phase_needs(const config::Config& config, const std::string& phase, bool on_gpu);

/// LibTorch, CUDA, NCCL, MPI and HDF5 as the dynamic loader finds them for `program`: name of the file and size, or "not found".
/// Empty when there is no such program.
std::map<std::string, std::string> libraries_of(const std::filesystem::path& program);

}  // namespace aerie::apps

// SPDX-License-Identifier: Apache-2.0
// The job scripts of a run: made of jobs/slurm/*.sbatch by changing what a site or a run wants otherwise in the header, and by
// writing down in them where run, programs and settings lie, so that they can be submitted from anywhere.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace aerie::apps {

struct JobScriptRequest {
  std::filesystem::path run, jobs, bin;  // absolute; jobs: where the scripts and lib/ of this run lie
  std::string name;                      // "train": jobs/train.sbatch
  std::string gres;                      // replaces the header's, unless empty; "none" leaves it out
  std::vector<std::string> options;      // more lines for the header; they beat those above them
  int array = 0;                         // tasks of a job array; 0: no array
};
/// `text` is the template.
std::string render_job_script(const std::string& text, const JobScriptRequest& request);

/// What the last --time and --signal of a script's header ask for, in seconds; no limit when there is none.
struct JobTimes {
  std::optional<double> limit;
  double warning = 0;
};
JobTimes job_times(const std::string& script);
/// Slurm looks every 30 s, so the signal comes up to 30 s early; some more must be left to work in. Throws ConfigError when a job
/// would be warned as soon as it starts, and so requeue for ever.
void check_job_times(const std::string& name, const JobTimes& times);

/// Slurm's forms of a time limit: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s. Nothing for UNLIMITED and INFINITE. Throws
/// ConfigError.
std::optional<double> parse_slurm_time(const std::string& text);

}  // namespace aerie::apps

// Files that by their names are one rank's of several: "consolidated.00.pth" (Llama), "rank0.safetensors" (TensorRT-LLM),
// "model-rank-0-part-0.safetensors" (vLLM), "mp_rank_00_model_states.pt", "model_world_size_4_rank_0.pt". One of them looks like
// a whole model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kintsugi::formats {

// What other ranks' would be called: the name with one number behind a word for ranks changed, to 0, or from 0 to 1.
std::vector<std::string> OtherRanksNames(std::string_view name);
// Another rank's file that is there beside this one, or in the folder of another rank beside its own; empty: there is none.
std::string OtherRanksFile(const std::string& path);

}  // namespace kintsugi::formats

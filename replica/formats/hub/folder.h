// A model's folder as Hugging Face's libraries have it: which of its files is the model, and what lies beside it.
//
// What: a file BASE.ENDING, or shards with an index BASE.ENDING.index.json; the base says whose it is (transformers,
// diffusers, PEFT), and a variant of it may stand behind ("model.fp16.safetensors"). The plain model counts, as for the
// libraries; others are told of.
// Threads: pure, but for the folder. Source: transformers/utils/__init__.py (5.23, read), diffusers' and PEFT's constants.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/catalog.h"

namespace kintsugi::formats::hub {

inline constexpr std::string_view kSafetensors = ".safetensors", kBin = ".bin";
inline constexpr std::string_view kModelBase = "model";
// Under which base safetensors of what was read under this one are looked for.
std::string BaseToWrite(const std::string& base);

struct ModelFile {
  std::string name, base;
  bool is_index = false, is_variant = false;
};
// By its name alone; nothing: it is called like no model, or one shard of several.
std::optional<ModelFile> ParseModelFile(std::string_view name, std::string_view ending);
// An index of shards by its name alone, whatever the model is called: for one that is named.
bool IsIndexName(std::string_view name, std::string_view ending);
// Those that lie there, what the libraries take first: transformers' before diffusers' before PEFT's; one file before
// an index, but for diffusers.
std::vector<ModelFile> ModelsIn(const std::string& folder, std::string_view ending);
// Whether these, in another ending than those, are what the libraries load: those are of the same library, or of one that
// counts after it.
bool AreOneModel(const std::vector<ModelFile>& these, const std::vector<ModelFile>& those);
// The one that is meant by naming the folder, and a note of the others. kInvalidArgument: several variants alone.
// REQUIRES: there are some.
Result<ModelFile> ChooseModel(Catalog* catalog, const std::string& folder, const std::vector<ModelFile>& models);
// The folders of the models of a pipeline of diffusers (model_index.json), as a sentence's end; empty: it is none.
std::string PipelineParts(const std::string& folder);
// The snapshots of a repository in Hugging Face's cache, the same; empty: it is none.
std::string SnapshotsIn(const std::string& folder);

// What the libraries save beside the weights: configuration, tokenizer, training arguments.
Status AddSideFiles(Catalog* catalog, const std::string& folder);

}  // namespace kintsugi::formats::hub

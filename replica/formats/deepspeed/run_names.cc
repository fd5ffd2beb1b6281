#include "replica/formats/deepspeed/run_names.h"

#include <algorithm>
#include <map>
#include <vector>

#include "callbacks/state/key.h"
#include "replica/aoa/state_names.h"
#include "replica/formats/deepspeed/names.h"
#include "replica/formats/model_buffers.h"
#include "replica/formats/model_only.h"
#include "replica/formats/pickle/writer.h"
#include "replica/plan/aoa_tensors.h"

namespace kintsugi::formats::deepspeed {
namespace {

// As torch's optimizers, which DeepSpeed's are called after. Empty: there is none.
std::string_view WordOf(StateMeaning meaning) {
  switch (meaning) {
    case StateMeaning::kMasterWeight:
      return kMaster;
    case StateMeaning::kFirstMoment:
      return "exp_avg";
    case StateMeaning::kSecondMoment:
      return "exp_avg_sq";
    case StateMeaning::kLargestSecondMoment:
      return "max_exp_avg_sq";
    case StateMeaning::kMomentum:
      return "momentum_buffer";
    case StateMeaning::kSquareAverage:
      return "square_avg";
    case StateMeaning::kGradientAverage:
      return "grad_avg";
    case StateMeaning::kSummedDelta:
      return "acc_delta";
    case StateMeaning::kInfinityNorm:
      return "exp_inf";
    case StateMeaning::kSum:
      return "sum";
    case StateMeaning::kStep:
      return "step";
    case StateMeaning::kFirstDecay:
    case StateMeaning::kSecondDecay:
      return "";
  }
  return "";
}

std::string OwnName(const std::string& model) {
  return model.starts_with(kModelPrefix) ? model.substr(kModelPrefix.size()) : model;
}

void WriteTexts(const std::vector<std::string>& texts, pickle::PickleWriter* writer) {
  writer->EmptyList();
  if (texts.empty()) return;
  writer->Mark();
  for (const std::string& text : texts) writer->Text(text);
  writer->Appends();
}

class Renamer {
 public:
  explicit Renamer(const Catalog& source)
      : source_(source),
        tensors_(plan::TensorsOf(source.metadata())),
        states_(tensors_, nullptr),
        named_(source.format(), source.path()) {}

  Result<std::optional<RunNames>> Run() {
    is_python_ = std::any_of(source_.tensors().begin(), source_.tensors().end(),
                             [](const CatalogTensor& tensor) { return tensor.key.starts_with(kModelPrefix); });
    for (uint32_t i = 0; i < source_.tensors().size(); ++i) {
      const CatalogTensor& tensor = source_.tensors()[i];
      if (StateOf(tensor.path, tensor.key) || ModuleOf(tensor.path, tensor.key)) return std::optional<RunNames>();
      Split(i);
    }
    if (std::all_of(parameters_.begin(), parameters_.end(), [](const auto& one) { return one.second.states.empty(); }))
      return std::optional<RunNames>();
    for (const auto& file : source_.files()) named_.AddFile(file);
    for (const std::string& name : order_) AddParameter(name, parameters_.at(name));
    for (const uint32_t number : others_) {
      CatalogTensor tensor = source_.tensors()[number];
      tensor.alias_of = OwnerHere(tensor);
      becomes_[number].push_back(named_.AddTensor(std::move(tensor)));
      called_[source_.tensors()[number].key].push_back(source_.tensors()[number].key);
    }
    for (const CatalogPiece& piece : source_.pieces())
      for (const uint32_t number : becomes_[piece.tensor]) {
        CatalogPiece own = piece;
        own.tensor = number;
        named_.AddPiece(std::move(own));
      }
    AddSums();
    for (const CatalogObject& object : source_.objects()) named_.AddObject(object);
    for (const CatalogSideFile& side : source_.side_files())
      named_.AddSideFile(side.name, source_.files()[side.file]->path());
    for (const std::string& note : source_.notes()) named_.AddNote(note);
    if (source_.step()) named_.SetStep(*source_.step());
    pickle::PickleWriter buffers, groups;
    WriteTexts(AddModelBuffers(source_, ModuleKey(""), &named_), &buffers);
    AddObject("buffer_names", &buffers);
    groups.EmptyList();
    groups.Mark();
    for (const auto& [same, names] : groups_) WriteTexts(names, &groups);
    groups.Appends();
    AddObject(std::string(kOptimizer) + "." + std::string(kGroups), &groups);
    KINTSUGI_RETURN_IF_ERROR(named_.Finish());
    return std::optional<RunNames>(RunNames{std::move(named_), std::move(masters_)});
  }

 private:
  struct Parameter {
    std::optional<uint32_t> tensor;               // of the model
    std::map<std::string_view, uint32_t> states;  // by DeepSpeed's word
  };

  void Split(uint32_t number) {
    const CatalogTensor& tensor = source_.tensors()[number];
    const aoa::SplitKey split = states_.Split(tensor.key);
    // What a Python trainer has beside its model, another model too, keeps its name.
    if (is_python_ && !split.model.starts_with(kModelPrefix)) {
      others_.push_back(number);
      return;
    }
    const std::string name = OwnName(split.model);
    const auto [found, is_new] = parameters_.try_emplace(name);
    if (is_new) order_.push_back(name);
    if (!split.form) {
      found->second.tensor = number;
      return;
    }
    const std::string_view word = WordOf(split.form->meaning);
    if (word.empty())
      named_.AddNote("'" + PrintableKey(tensor.key) + "' is left out: DeepSpeed keeps no such state");
    else
      found->second.states[word] = number;
  }

  void AddParameter(const std::string& name, const Parameter& parameter) {
    if (!parameter.tensor && parameter.states.empty()) return;
    const auto master = parameter.states.find(kMaster);
    const std::optional<uint32_t> weights =
        parameter.tensor ? parameter.tensor
                         : (master == parameter.states.end() ? std::nullopt : std::optional(master->second));
    if (!weights) {
      for (const auto& [word, number] : parameter.states)
        named_.AddNote("'" + PrintableKey(source_.tensors()[number].key) + "' is left out: its parameter '" +
                       PrintableKey(name) + "' is not there");
      return;
    }
    Add(*weights, ModuleKey(name), OwnerHere(source_.tensors()[*weights]));
    if (parameter.states.empty()) return;
    const std::string key = JoinPath(StatePath(name, std::string(kMaster)));
    Add(master == parameter.states.end() ? *weights : master->second, key, "");
    masters_.insert(key);
    std::string same;  // what all of a group have alike
    for (const auto& [word, number] : parameter.states) {
      const CatalogTensor& tensor = source_.tensors()[number];
      if (word != kMaster) Add(number, JoinPath(StatePath(name, std::string(word))), "");
      same += std::string(word) + " " + std::string(DTypeName(tensor.dtype));
      if (tensor.shape != source_.tensors()[*weights].shape) same += " " + ValueOf(number);
      same += ";";
    }
    groups_[same].push_back(name);
  }

  // What the owner of its bytes is called here; empty: it has them itself, for the owner is left out or a state.
  std::string OwnerHere(const CatalogTensor& tensor) const {
    if (tensor.alias_of.empty()) return "";
    const auto is_owner = [&](uint32_t number) { return source_.tensors()[number].key == tensor.alias_of; };
    if (std::any_of(others_.begin(), others_.end(), is_owner)) return tensor.alias_of;
    const std::string name = OwnName(tensor.alias_of);
    const auto found = parameters_.find(name);
    return found != parameters_.end() && found->second.tensor && is_owner(*found->second.tensor) ? ModuleKey(name) : "";
  }

  static std::string ModuleKey(const std::string& name) { return std::string(kModule) + "." + name; }

  void Add(uint32_t number, const std::string& key, const std::string& alias_of) {
    const CatalogTensor& tensor = source_.tensors()[number];
    const auto at = key.find('.');
    Path path = PathOf(key.substr(0, at));
    if (path[0].text == kModule)
      path.push_back({PathPart::Kind::kText, key.substr(at + 1), 0});
    else
      path = {path[0],
              {PathPart::Kind::kText, key.substr(at + 1, key.rfind('.') - at - 1), 0},
              {PathPart::Kind::kText, key.substr(key.rfind('.') + 1), 0}};
    becomes_[number].push_back(named_.AddTensor({key, tensor.dtype, tensor.shape, path, alias_of}));
    if (alias_of.empty()) called_[tensor.key].push_back(key);
  }

  // The bytes of a state that is one value: parameters at different steps do not share a group.
  std::string ValueOf(uint32_t number) const {
    for (const CatalogPiece& piece : source_.pieces())
      if (piece.tensor == number && piece.bytes <= 64)
        return std::string(source_.files()[piece.file]->text().substr(piece.at, piece.bytes));
    return "";
  }

  void AddSums() {
    std::vector<checkpoint::TensorSum> sums;
    for (const checkpoint::TensorSum& sum : source_.tensor_sums())
      if (const auto names = called_.find(sum.key); names != called_.end())
        for (const std::string& key : names->second) {
          sums.push_back(sum);
          sums.back().key = key;
        }
    std::sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    named_.SetTensorSums(std::move(sums));
  }

  void AddObject(std::string key, pickle::PickleWriter* writer) {
    named_.AddObject({std::move(key), CatalogObject::Form::kPickle, writer->Finish(), {}});
  }

  const Catalog& source_;
  const aoa::Tensors tensors_;
  const aoa::StateNames states_;
  Catalog named_;
  bool is_python_ = false;
  std::vector<uint32_t> others_;
  std::map<std::string, Parameter> parameters_;
  std::vector<std::string> order_;
  std::map<uint32_t, std::vector<uint32_t>> becomes_;  // by number in the source
  std::map<std::string, std::vector<std::string>> called_;
  std::map<std::string, std::vector<std::string>> groups_;
  std::set<std::string> masters_;
};

}  // namespace

Result<std::optional<RunNames>> CalledAsDeepSpeed(const Catalog& source) { return Renamer(source).Run(); }

}  // namespace kintsugi::formats::deepspeed

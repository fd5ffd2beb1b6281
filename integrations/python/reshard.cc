// Shards as Python describes them: of two layouts, for kintsugi_reshard; of the one to come, for kintsugi_cut_anew.
#include <agent.h>

#include <string>
#include <tuple>
#include <vector>

namespace kintsugi::python {
namespace {

using Lengths = std::vector<int64_t>;
// key, element type, global shape, box, offset, flat range, address, bytes, whether another global shape is fine.
using Description = std::tuple<std::string, std::string, Lengths, Lengths, Lengths, std::pair<int64_t, int64_t>,
                               uintptr_t, uint64_t, bool>;
// bytes sent, received and local; keys, a line each: unread and unfilled; notes.
using Report = std::tuple<int64_t, int64_t, int64_t, std::string, std::string, std::string>;

// Descriptions as the C ABI takes them; they outlive it.
class Shards {
 public:
  explicit Shards(const std::vector<Description>& given) : tensors_(given.size()) {
    for (size_t i = 0; i < given.size(); ++i) {
      const auto& [key, dtype, shape, box, offset, flat, data, size_bytes, mismatch] = given[i];
      kintsugi_tensor& tensor = tensors_[i];
      tensor.size = sizeof tensor;
      tensor.key = key.c_str();
      tensor.dtype = dtype.c_str();
      tensor.dimensions = static_cast<int32_t>(shape.size());
      tensor.global_shape = shape.data();
      tensor.local_shape = box.data();
      tensor.global_offset = offset.data();
      tensor.flat_start = flat.first;
      tensor.flat_stop = flat.second;
      tensor.data = reinterpret_cast<void*>(data);
      tensor.size_bytes = size_bytes;
      tensor.allow_shape_mismatch = mismatch;
      pointers_.push_back(&tensor);
    }
  }
  // Of each, the number of its layout.
  void SetLayouts(const std::vector<int>& layouts) {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].layout = layouts.at(i);
  }
  const kintsugi_tensor* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  std::vector<kintsugi_tensor> tensors_;
  std::vector<const kintsugi_tensor*> pointers_;
};

Report Reshard(const PythonAgent& agent, const std::vector<Description>& source, const std::vector<Description>& target,
               const std::string& program, bool reverse, bool cast, const std::string& strict, int64_t timeout_ms,
               const std::string& own_error, const std::vector<int32_t>& ranks, const WordFunctions& macros) {
  const Words words(macros);
  const Shards held(source), wanted(target);
  kintsugi_reshard_options options{};
  options.size = sizeof options;
  options.program = program.c_str();
  options.reverse = reverse;
  options.allow_cast = cast;
  options.strict = strict.empty() ? nullptr : strict.c_str();
  options.timeout_ms = timeout_ms;
  options.own_error = own_error.empty() ? nullptr : own_error.c_str();
  options.ranks = ranks.empty() ? nullptr : ranks.data();
  options.rank_count = ranks.size();
  options.macros = words.data();
  options.macro_count = words.size();
  kintsugi_reshard_report report{};
  report.size = sizeof report;
  Checked([&](kintsugi_error** error) {
    return kintsugi_reshard(agent.get(), held.data(), held.size(), wanted.data(), wanted.size(), &options, &report,
                            error);
  });
  return {report.bytes_sent, report.bytes_received, report.bytes_local, report.unread, report.unfilled, report.notes};
}

// `layout_of`: of each tensor. `layouts`: number, who shares it, how many of them hold the same.
void CutAnew(const PythonAgent& agent, const std::vector<Description>& tensors, const std::vector<int>& layout_of,
             const std::vector<std::tuple<int, Ranks, int>>& layouts,
             const std::map<std::string, std::string>& aliases) {
  Shards wanted(tensors);
  wanted.SetLayouts(layout_of);
  std::vector<kintsugi_layout> all;
  for (const auto& [layout, ranks, replicas] : layouts)
    all.push_back({.layout = layout, .replicas = replicas, .ranks = ranks.data(), .rank_count = ranks.size()});
  std::vector<kintsugi_alias> names;
  for (const auto& [alias, key] : aliases) names.push_back({alias.c_str(), key.c_str()});
  kintsugi_cut cut{};
  cut.size = sizeof cut;
  cut.tensors = wanted.data();
  cut.tensor_count = wanted.size();
  cut.layouts = all.data();
  cut.layout_count = all.size();
  cut.aliases = names.data();
  cut.alias_count = names.size();
  Checked([&](kintsugi_error** error) { return kintsugi_cut_anew(agent.get(), &cut, error); });
}

}  // namespace

void BindReshard(nb::class_<PythonAgent>* agent) {
  agent->def("reshard", &Reshard, nb::arg("source"), nb::arg("target"), nb::arg("program"), nb::arg("reverse"),
             nb::arg("cast"), nb::arg("strict"), nb::arg("timeout_ms"), nb::arg("own_error"), nb::arg("ranks"),
             nb::arg("macros"));
  agent->def("cut_anew", &CutAnew, nb::arg("tensors"), nb::arg("layout_of"), nb::arg("layouts"), nb::arg("aliases"));
}

}  // namespace kintsugi::python

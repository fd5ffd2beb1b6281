#include "replica/resume/layouts.h"

#include <vector>

#include "replica/layout/builder.h"
#include "replica/layout/codec.h"
#include "replica/layout/merge.h"
#include "replica/layout/validate.h"
#include "replica/resume/target.h"

namespace kintsugi::resume {
namespace {

using layout::Metadata;

Bytes BytesOf(const Metadata& metadata) {
  const std::string text = Encode(metadata);
  return Bytes(text.begin(), text.end());
}

Result<Metadata> MetadataOf(const Bytes& bytes) {
  auto decoded = layout::Decode(bytes);
  if (!decoded.ok()) return decoded.error().ToStatus();
  return std::move(decoded).value();
}

}  // namespace

Result<Metadata> AgreeOnLayouts(const std::string& name, const Result<Metadata>& own, Agreement& agreement) {
  const auto join = [](const std::vector<Bytes>& all) -> Result<Bytes> {
    std::vector<Metadata> lists;
    for (const Bytes& one : all) {
      KINTSUGI_ASSIGN_OR_RETURN(lists.emplace_back(), MetadataOf(one));
    }
    const Metadata together = layout::MergeAll(lists);
    if (const auto errors = Validate(together, {.is_request = true}); !errors.empty())
      return Status(StatusCode::kFailedPrecondition, "what the ranks have registered: " + errors.front().message);
    return BytesOf(together);
  };
  const Result<Bytes> said = own.ok() ? Result<Bytes>(BytesOf(*own)) : Result<Bytes>(own.status());
  KINTSUGI_ASSIGN_OR_RETURN(const Bytes merged, agreement.Reach(name, said, join));
  return MetadataOf(merged);
}

Result<Metadata> RegisteredByAll(const StateRegistry& registry, const Aliases* aliases, Agreement agreement) {
  layout::MetadataBuilder builder;
  const int self = agreement.self().value();
  builder.AddRank(self);
  for (const auto& [key, tensor] : registry.tensors()) builder.AddTensor(self, ResumeTarget::PieceAlone(tensor, key));
  if (aliases)
    for (const auto& [alias, key] : aliases->all())
      builder.AddTensor(self, ResumeTarget::PieceAlone(registry.tensors().at(key), alias));
  return AgreeOnLayouts("registered", Result<Metadata>(builder.Build()), agreement);
}

}  // namespace kintsugi::resume

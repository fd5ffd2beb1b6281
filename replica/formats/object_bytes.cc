// A trainer's bytes, out of whatever form a format keeps objects in.
#include "replica/formats/catalog.h"
#include "replica/formats/torch/state_dict.h"

namespace kintsugi::formats {
namespace {

Result<std::string> BytesIn(const pickle::Tree& tree, const CatalogObject& object) {
  const pickle::Node& root = tree[tree.root];
  if (root.kind == pickle::Kind::kBytes || root.kind == pickle::Kind::kByteArray) return std::string(root.text);
  // Bytes in protocol 2 are a text of code points below 256, encoded.
  if (const auto arguments = tree.ArgumentsOf(tree.root, "_codecs", "encode"); arguments && arguments->size() == 2) {
    const auto text = tree.TextOf((*arguments)[0]), codec = tree.TextOf((*arguments)[1]);
    if (text && codec == "latin1") {
      auto bytes = pickle::FromLatin1(*text);
      if (!bytes) return Status(StatusCode::kDataLoss, "object '" + object.key + "': its text is no latin1");
      return *std::move(bytes);
    }
  }
  // What Python makes of no bytes at all.
  if (const auto arguments = tree.ArgumentsOf(tree.root, "__builtin__", "bytes"); arguments && arguments->empty())
    return std::string();
  return Status(StatusCode::kFailedPrecondition, "object '" + object.key + "' is " +
                                                     pickle::DescribeNode(tree, tree.root) +
                                                     ", not the bytes that a run's object is made of");
}

}  // namespace

Result<std::string> BytesOf(const CatalogObject& object) {
  const std::string place = "object '" + object.key + "'";
  switch (object.form) {
    case CatalogObject::Form::kBytes:
      return object.data;
    case CatalogObject::Form::kPickle: {
      KINTSUGI_ASSIGN_OR_RETURN(const pickle::Tree tree, pickle::Parse(object.data, place));
      return BytesIn(tree, object);
    }
    case CatalogObject::Form::kTorch: {
      KINTSUGI_ASSIGN_OR_RETURN(const torch::Archive archive, torch::OpenArchive(object.data, place));
      return BytesIn(archive.tree, object);
    }
  }
  return Status(StatusCode::kInternal, place + " has no form");
}

}  // namespace kintsugi::formats

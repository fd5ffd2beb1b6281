// What is to be repaired: memory, tensors, layouts, objects.
#include "callbacks/state/registry.h"
#include "integrations/c/handle.h"

using namespace kintsugi;

namespace {

Shape ShapeOf(const int64_t* numbers, int32_t count) { return Shape(numbers, numbers + count); }

void Capture(void* context, std::vector<uint8_t>* out) {
  const auto& object = *static_cast<kintsugi_agent::Object*>(context);
  out->insert(out->end(), object.bytes->begin(), object.bytes->end());
}

SharedBytes Share(void* context) { return static_cast<kintsugi_agent::Object*>(context)->bytes; }

// Bytes that are as they were stay the very same, and are handed on as such.
void Take(kintsugi_agent::Object* object, const uint8_t* bytes, uint64_t size_bytes) {
  const std::vector<uint8_t>& before = *object->bytes;
  if (before.size() == size_bytes && (size_bytes == 0 || std::memcmp(before.data(), bytes, size_bytes) == 0)) return;
  object->bytes = std::make_shared<const std::vector<uint8_t>>(bytes, bytes + size_bytes);
}

Status Restore(void* context, const uint8_t* bytes, uint64_t size_bytes) {
  Take(static_cast<kintsugi_agent::Object*>(context), bytes, size_bytes);
  return Status::Ok();
}

constexpr bool Same(kintsugi_take_over c, TakeOver how) { return static_cast<int>(c) == static_cast<int>(how); }
static_assert(Same(KINTSUGI_TAKE_OVER_UNSAID, TakeOver::kUnsaid) &&
              Same(KINTSUGI_TAKE_OVER_SAME_RANK, TakeOver::kSameRank) &&
              Same(KINTSUGI_TAKE_OVER_RANK_ZERO, TakeOver::kRankZero) &&
              Same(KINTSUGI_TAKE_OVER_DERIVED, TakeOver::kDerived) && Same(KINTSUGI_TAKE_OVER_OWN, TakeOver::kOwn) &&
              Same(KINTSUGI_TAKE_OVER_CELL, TakeOver::kCell));

Status TakeOverAll(void* context, const std::vector<SavedObject>& saved, std::vector<uint8_t>* out) {
  const auto& object = *static_cast<kintsugi_agent::Object*>(context);
  std::vector<kintsugi_saved_object> all;
  for (const SavedObject& one : saved) all.push_back({one.rank.value(), one.data, one.size_bytes});
  kintsugi_bytes taken;
  const kintsugi_code code = object.take_over_all(object.take_over_context, all.data(), all.size(), &taken);
  if (code != KINTSUGI_OK) {
    const std::string text(taken.bytes.begin(), taken.bytes.end());
    return {code > KINTSUGI_OK && code <= KINTSUGI_INTERNAL ? static_cast<StatusCode>(code) : StatusCode::kInternal,
            text.empty() ? "its function could not take it over" : text};
  }
  out->insert(out->end(), taken.bytes.begin(), taken.bytes.end());
  return Status::Ok();
}

Status Register(kintsugi_agent* agent, const kintsugi_object& given) {
  if (!given.key) return {StatusCode::kInvalidArgument, "an object without a key"};
  if (given.take_over < KINTSUGI_TAKE_OVER_UNSAID || given.take_over > KINTSUGI_TAKE_OVER_CELL)
    return {StatusCode::kInvalidArgument, "object '" + std::string(given.key) +
                                              "': " + std::to_string(given.take_over) + " is no kintsugi_take_over"};
  ShardedObject object;
  object.key = given.key;
  object.kind = static_cast<ObjectKind>(given.kind);
  object.take_over = static_cast<TakeOver>(given.take_over);
  if (given.kind != KINTSUGI_MIRRORED) return agent->agent->RegisterObject(object);
  auto held = std::make_unique<kintsugi_agent::Object>();
  held->key = given.key;
  held->take_over = static_cast<kintsugi_take_over>(given.take_over);
  held->take_over_all = given.take_over_all;
  held->take_over_context = given.context;
  object.capture = Capture;
  object.share = Share;
  object.restore = Restore;
  if (given.take_over_all) object.take_over_all = TakeOverAll;
  object.context = held.get();
  KINTSUGI_RETURN_IF_ERROR(agent->agent->RegisterObject(object));
  agent->objects.emplace(given.key, std::move(held));
  return Status::Ok();
}

Result<kintsugi_agent::Object*> Find(kintsugi_agent* agent, const char* key) {
  const auto found = agent->objects.find(key ? key : "");
  if (found == agent->objects.end())
    return Status(StatusCode::kNotFound, "no mirrored object '" + std::string(key ? key : "") + "' is registered");
  return found->second.get();
}

std::vector<Rank> RanksFrom(const int32_t* ranks, size_t count) { return {ranks, ranks + count}; }

// Objects are those that are registered.
Status CutAnew(kintsugi_agent* agent, const kintsugi_cut* from) {
  kintsugi_cut given;
  KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(from, "kintsugi_cut", &given));
  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_cut", "tensors", given.tensors, given.tensor_count));
  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_cut", "layouts", given.layouts, given.layout_count));
  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_cut", "aliases", given.aliases, given.alias_count));
  CutState state;
  for (size_t i = 0; i < given.tensor_count; ++i) {
    KINTSUGI_ASSIGN_OR_RETURN(state.tensors.emplace_back(), c::TensorFrom(given.tensors[i], *agent->agent));
  }
  for (size_t i = 0; i < given.layout_count; ++i) {
    const kintsugi_layout& one = given.layouts[i];
    KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_layout", "ranks", one.ranks, one.rank_count));
    state.layouts.push_back({one.layout, RanksFrom(one.ranks, one.rank_count), one.replicas});
  }
  for (size_t i = 0; i < given.alias_count; ++i) {
    const kintsugi_alias& one = given.aliases[i];
    if (!one.alias || !one.key) return {StatusCode::kInvalidArgument, "an alias needs two names"};
    state.aliases[one.alias] = one.key;
  }
  for (const auto& [key, object] : AgentInternals::registry(*agent->agent).objects()) state.objects.push_back(object);
  return agent->agent->CutAnew(state);
}

}  // namespace

Result<ShardedTensor> kintsugi::c::TensorFrom(const kintsugi_tensor* from, const Agent& agent) {
  kintsugi_tensor given;
  KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(from, "kintsugi_tensor", &given));
  if (!given.key || !given.dtype)
    return Status(StatusCode::kInvalidArgument, "kintsugi_tensor: key and dtype are needed");
  ShardedTensor tensor;
  tensor.key = given.key;
  const std::optional<DType> dtype = DTypeFromName(given.dtype);
  if (!dtype)
    return Status(StatusCode::kInvalidArgument,
                  "tensor '" + tensor.key + "': '" + given.dtype + "' is no element type that can be repaired");
  tensor.dtype = *dtype;
  if (given.dimensions < 0 || given.dimensions > 64 || (given.dimensions > 0 && !given.global_shape))
    return Status(StatusCode::kInvalidArgument,
                  "tensor '" + tensor.key + "': " + std::to_string(given.dimensions) + " dimensions without a shape");
  tensor.global_shape = ShapeOf(given.global_shape, given.dimensions);
  tensor.local_shape = given.local_shape ? ShapeOf(given.local_shape, given.dimensions) : tensor.global_shape;
  tensor.global_offset = given.global_offset ? ShapeOf(given.global_offset, given.dimensions)
                                             : Shape(static_cast<size_t>(given.dimensions), 0);
  if (given.flat_start != 0 || given.flat_stop != 0) tensor.flattened_range = {given.flat_start, given.flat_stop};
  tensor.layout = given.layout;
  tensor.allow_shape_mismatch = given.allow_shape_mismatch != 0;
  tensor.memory.data = given.data;
  tensor.memory.size_bytes = given.size_bytes;
  if (given.device > 0) {
    tensor.memory.kind = MemoryKind::kDevice;
    tensor.memory.device = given.device - 1;
  }
  agent.DescribeMemory(&tensor.memory);
  return tensor;
}

kintsugi_code kintsugi_allocate(kintsugi_agent* agent, uint64_t size_bytes, void** data, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!data) return c::IsNull("kintsugi_allocate", "data");
                               KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, agent->agent->AllocateState(size_bytes));
                               *data = memory.data;
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_allocate_on_device(kintsugi_agent* agent, uint64_t size_bytes, void** data,
                                          kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!data) return c::IsNull("kintsugi_allocate_on_device", "data");
                               KINTSUGI_ASSIGN_OR_RETURN(const Memory memory,
                                                         agent->agent->AllocateDeviceState(size_bytes));
                               *data = memory.data;
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_share_memory(kintsugi_agent* agent, void* data, uint64_t size_bytes, int fd,
                                    kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return agent->agent->ShareState(data, size_bytes, fd); }), error);
}

kintsugi_code kintsugi_register_tensor(kintsugi_agent* agent, const kintsugi_tensor* tensor, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               KINTSUGI_ASSIGN_OR_RETURN(const ShardedTensor given,
                                                         c::TensorFrom(tensor, *agent->agent));
                               return agent->agent->RegisterTensor(given);
                             }),
                   error);
}

kintsugi_code kintsugi_rebind_tensor(kintsugi_agent* agent, const kintsugi_tensor* tensor, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               KINTSUGI_ASSIGN_OR_RETURN(const ShardedTensor given,
                                                         c::TensorFrom(tensor, *agent->agent));
                               return agent->agent->RebindTensor(given);
                             }),
                   error);
}

kintsugi_code kintsugi_unregister_tensor(kintsugi_agent* agent, const char* key, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!key) return {StatusCode::kInvalidArgument, "unregistering a tensor needs its key"};
                               return agent->agent->UnregisterTensor(key);
                             }),
                   error);
}

int32_t kintsugi_has_tensor(const kintsugi_agent* agent, const char* key) {
  return agent && key && AgentInternals::registry(*agent->agent).tensors().count(key) > 0;
}

kintsugi_code kintsugi_register_alias(kintsugi_agent* agent, const char* alias, const char* key,
                                      kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!alias || !key) return {StatusCode::kInvalidArgument, "an alias needs two names"};
                               return agent->agent->RegisterAlias(alias, key);
                             }),
                   error);
}

kintsugi_code kintsugi_set_layout(kintsugi_agent* agent, int32_t layout, const int32_t* ranks, size_t rank_count,
                                  int32_t replicas, kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_set_layout", "ranks", ranks, rank_count));
                  return agent->agent->SetReplicaLayout(layout, RanksFrom(ranks, rank_count), replicas);
                }),
      error);
}

kintsugi_code kintsugi_allow_rejects(kintsugi_agent* agent, int32_t most, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return agent->agent->AllowRejects(most); }), error);
}

kintsugi_code kintsugi_hand_over_objects(kintsugi_agent* agent, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return agent->agent->HandOverObjects(); }), error);
}

kintsugi_code kintsugi_offer_worlds(kintsugi_agent* agent, const int32_t* slice, size_t slice_count,
                                    const int32_t* worlds, size_t world_count, kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_offer_worlds", "slice", slice, slice_count));
                  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_offer_worlds", "worlds", worlds, world_count));
                  return agent->agent->OfferWorlds(RanksFrom(slice, slice_count), {worlds, worlds + world_count});
                }),
      error);
}

kintsugi_code kintsugi_offer_any_layout(kintsugi_agent* agent, const int32_t* worlds, size_t world_count,
                                        kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_offer_any_layout", "worlds", worlds, world_count));
                  return agent->agent->OfferAnyLayout({worlds, worlds + world_count});
                }),
      error);
}

kintsugi_code kintsugi_cut_anew(kintsugi_agent* agent, const kintsugi_cut* cut, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent, [&] { return CutAnew(agent, cut); }), error);
}

kintsugi_code kintsugi_register_object(kintsugi_agent* agent, const char* key, kintsugi_object_kind kind,
                                       kintsugi_error** error) {
  kintsugi_object object{};
  object.key = key;
  object.kind = kind;
  return c::Answer(c::AtEdge(agent, [&] { return Register(agent, object); }), error);
}

kintsugi_code kintsugi_register_object_as(kintsugi_agent* agent, const kintsugi_object* object,
                                          kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               kintsugi_object given;
                               KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(object, "kintsugi_object", &given));
                               return Register(agent, given);
                             }),
                   error);
}

kintsugi_code kintsugi_bytes_append(kintsugi_bytes* bytes, const void* data, size_t size_bytes) {
  if (!bytes || (!data && size_bytes > 0)) return KINTSUGI_INVALID_ARGUMENT;
  try {
    const auto* begin = static_cast<const uint8_t*>(data);
    bytes->bytes.insert(bytes->bytes.end(), begin, begin + size_bytes);
  } catch (const std::exception&) {
    return KINTSUGI_RESOURCE_EXHAUSTED;
  }
  return KINTSUGI_OK;
}

kintsugi_code kintsugi_put_object(kintsugi_agent* agent, const char* key, uint64_t step, const void* bytes,
                                  size_t size_bytes, kintsugi_error** error) {
  return c::Answer(
      c::AtEdge(agent,
                [&]() -> Status {
                  KINTSUGI_ASSIGN_OR_RETURN(kintsugi_agent::Object* const object, Find(agent, key));
                  KINTSUGI_RETURN_IF_ERROR(c::CheckArray("kintsugi_put_object", "bytes", bytes, size_bytes));
                  Take(object, static_cast<const uint8_t*>(bytes), size_bytes);
                  object->step = step;
                  object->put = true;
                  return Status::Ok();
                }),
      error);
}

kintsugi_code kintsugi_keep_object(kintsugi_agent* agent, const char* key, uint64_t step, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               KINTSUGI_ASSIGN_OR_RETURN(kintsugi_agent::Object* const object, Find(agent, key));
                               if (!object->put)
                                 return {StatusCode::kFailedPrecondition,
                                         "object '" + object->key + "' is to stay as it was, and was never put"};
                               object->step = step;
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_get_object(kintsugi_agent* agent, const char* key, const void** bytes, size_t* size_bytes,
                                  kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!bytes || !size_bytes)
                                 return c::IsNull("kintsugi_get_object", "bytes or size_bytes");
                               KINTSUGI_ASSIGN_OR_RETURN(const kintsugi_agent::Object* const object, Find(agent, key));
                               *bytes = object->bytes->data();
                               *size_bytes = object->bytes->size();
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_get_object_of(kintsugi_agent* agent, int32_t rank, const char* key, uint64_t step,
                                     const void** bytes, size_t* size_bytes, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!key || !bytes || !size_bytes)
                                 return c::IsNull("kintsugi_get_object_of", "key, bytes or size_bytes");
                               KINTSUGI_ASSIGN_OR_RETURN(auto objects,
                                                         agent->agent->MirroredOf(Rank(rank), Step(step)));
                               const auto found = objects.find(key);
                               if (found == objects.end())
                                 return {StatusCode::kNotFound, "rank " + std::to_string(rank) + " has no object '" +
                                                                    key + "' at step " + std::to_string(step)};
                               agent->object_of = std::move(found->second);
                               *bytes = agent->object_of.data();
                               *size_bytes = agent->object_of.size();
                               return Status::Ok();
                             }),
                   error);
}

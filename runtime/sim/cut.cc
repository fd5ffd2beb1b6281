#include "runtime/sim/cut.h"

#include <optional>

#include "runtime/base/check.h"

namespace kintsugi::sim {
namespace {

constexpr int kCells = kCellRows * kCellColumns;

std::vector<std::vector<Rank>> PartnersIn(const ReplicaMap& replicas, const core::Crew& crew) {
  std::vector<std::vector<Rank>> partners(static_cast<size_t>(crew.seats()));
  for (Rank rank : crew.ranks()) partners[static_cast<size_t>(rank.value())] = replicas.Partners(rank);
  return partners;
}

Cut Made(const core::Crew& crew, Claims claims) {
  ReplicaMap replicas = ReplicaMap::Build(crew, claims).value();
  std::vector<std::vector<Rank>> partners = PartnersIn(replicas, crew);
  return {crew, std::move(claims), std::move(replicas), std::move(partners), {}, {}, {}};
}

// A shard's place: a box of cells, and of that a flat range.
struct Place {
  int row = 0, column = 0, rows = 0, columns = 0;
  std::optional<FlatRange> flat;
};

// Boundaries of `parts` among `all`, as even as can be: some may be empty.
int Boundary(int all, int part, int parts) { return all * part / parts; }

Place PlaceOf(CutKind kind, int shard, int shards) {
  if (kind == CutKind::kFlat)
    return {0, 0, kCellRows, kCellColumns,
            FlatRange{Boundary(kCells, shard, shards), Boundary(kCells, shard + 1, shards)}};
  const int across = kind == CutKind::kColumns && shards % kCellColumns == 0 ? kCellColumns : 1;
  const int down = shards / across, row = Boundary(kCellRows, shard / across, down);
  const int columns = kCellColumns / across;
  return {row, shard % across * columns, Boundary(kCellRows, shard / across + 1, down) - row, columns, std::nullopt};
}

std::vector<int> CellsAt(const Place& place) {
  std::vector<int> cells;
  int64_t flat = 0;
  for (int row = place.row; row < place.row + place.rows; ++row)
    for (int column = place.column; column < place.column + place.columns; ++column, ++flat)
      if (!place.flat || (flat >= place.flat->start && flat < place.flat->stop))
        cells.push_back(row * kCellColumns + column);
  return cells;
}

ShardedTensor TensorAt(const Place& place, size_t tensor, int copy) {
  return {.key = KeyOf(0, tensor),
          .dtype = DType::kFloat64,
          .global_shape = {kCellRows, kCellColumns},
          .local_shape = {place.rows, place.columns},
          .global_offset = {place.row, place.column},
          .flattened_range = place.flat,
          .replica_id = {copy}};
}

// As the agents' claims have it: shard i of s lies with numbers i, i + s, i + 2s and so on.
Cut CutFor(const core::Crew& crew, const CutRule& rule) {
  const int size = static_cast<int>(crew.size()), shards = size / rule.copies;
  KINTSUGI_CHECK(shards * rule.copies == size, "a world is cut into shards that it is not a multiple of");
  Claims claims;
  for (Rank rank : crew.ranks()) claims[rank][0] = {crew.ranks(), rule.copies};
  Cut cut = Made(crew, std::move(claims));
  for (int number = 0; number < size; ++number) {
    const Rank rank = crew.At(number);
    const Place place = PlaceOf(rule.kind, number % shards, shards);
    cut.cells[rank] = CellsAt(place);
    cut.main_cells[rank] = number < shards ? cut.cells[rank] : std::vector<int>();
    for (size_t tensor = 0; tensor < kTensorsPerLayout; ++tensor)
      cut.tensors[rank].push_back(TensorAt(place, tensor, number / shards));
  }
  return cut;
}

}  // namespace

std::string_view CutKindName(CutKind kind) {
  return kind == CutKind::kRows ? "rows" : kind == CutKind::kColumns ? "columns" : "flat";
}

std::string KeyOf(int layout, size_t tensor) { return "l" + std::to_string(layout) + "t" + std::to_string(tensor); }

std::vector<std::pair<int, int>> Cut::CellsOf(Rank rank) const {
  std::vector<std::pair<int, int>> found;
  if (!cells.empty()) {
    for (const int cell : cells.at(rank)) found.emplace_back(0, cell);
    return found;
  }
  for (const int layout : replicas.LayoutsOf(rank))
    found.emplace_back(layout, replicas.Holders(layout, rank).front().value());
  return found;
}

Cuts::Cuts(int seats, Claims claims, std::map<int, CutRule> rules) : rules_(std::move(rules)) {
  const core::Crew all(seats);
  whole_ = cuts_
               .emplace(all.ranks(), std::make_unique<const Cut>(any_layout() ? CutFor(all, rules_.at(seats))
                                                                              : Made(all, std::move(claims))))
               .first->second.get();
}

const Cut& Cuts::Of(const core::Crew& crew) const {
  if (!any_layout()) return *whole_;
  std::unique_ptr<const Cut>& cut = cuts_[crew.ranks()];
  if (!cut) cut = std::make_unique<const Cut>(CutFor(crew, rules_.at(static_cast<int>(crew.size()))));
  return *cut;
}

}  // namespace kintsugi::sim

// Casts between float types on a device: cast_work.h under a grid.
#include "kernels/cuda_launch.cuh"

namespace kintsugi::internal {
namespace {

template <typename To, typename From, typename MoveType>
__global__ void __launch_bounds__(kTileThreads) CastKernel(const __grid_constant__ MoveTable<MoveType> table) {
  for (uint32_t tile = blockIdx.x; tile < table.tiles; tile += gridDim.x)
    CastTile<To, From>(table.move[FindMove(table, tile)], tile, threadIdx.x);
}

template <typename MoveType>
Status Launch(const Grid& grid, ElementType to, ElementType from, const MoveTable<MoveType>& table,
              KernelStream stream) {
  return grid.Run("launch of a cast", table.tiles, [&](uint32_t blocks) {
    ForFloatPair(to, from, [&]<typename To, typename From>() {
      CastKernel<To, From><<<blocks, kTileThreads, 0, StreamOf(stream)>>>(table);
    });
  });
}

}  // namespace

Status LaunchCast(const Grid& grid, ElementType to, ElementType from, const MoveTable<FlatMove>& table,
                  KernelStream stream) {
  return Launch(grid, to, from, table, stream);
}

Status LaunchCast(const Grid& grid, ElementType to, ElementType from, const MoveTable<DeepMove>& table,
                  KernelStream stream) {
  return Launch(grid, to, from, table, stream);
}

}  // namespace kintsugi::internal

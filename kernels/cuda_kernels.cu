#include "kernels/cuda_kernels.h"
#include "kernels/cuda_launch.cuh"

namespace kintsugi {
namespace internal {
namespace {

// Three blocks per processor leave 85 registers to a thread, enough to keep its loads in flight without spilling.
template <bool kWithSums, typename MoveType>
__global__ void __launch_bounds__(kTileThreads, 3)
    CopyKernel(const __grid_constant__ MoveTable<MoveType> table, const SumTarget target) {
  for (uint32_t tile = blockIdx.x; tile < table.tiles; tile += gridDim.x) {
    const MoveType& move = table.move[FindMove(table, tile)];
    const TileSums sums = CopyTile<kWithSums>(move, tile, threadIdx.x, target.block_shift);
    if constexpr (kWithSums) {
      const uint64_t block = FirstBlock(move, tile, target.block_shift);
      const auto first = BlockSum(sums.first);
      // Few tiles lie across the end of a block; whether this one does is the same in all threads.
      const uint32_t in_move = (tile - move.first_tile) * kTileWords;
      const uint32_t words = min(kTileWords, move.words - in_move);
      const uint64_t last = move.packed_offset + (static_cast<uint64_t>(in_move) + words) * move.word_bytes - 1;
      const bool is_across = last >> target.block_shift != block;
      const auto second = is_across ? BlockSum(sums.second) : 0;
      if (threadIdx.x == 0) {
        atomicAdd(Atomic(target.sums + block), first);
        if (is_across) atomicAdd(Atomic(target.sums + block + 1), second);
      }
    }
  }
}

__global__ void __launch_bounds__(kTileThreads) SumKernel(const Range range, const SumTarget target) {
  const uint64_t mask = (uint64_t{1} << target.block_shift) - 1;
  for (uint64_t tile = blockIdx.x; tile < range.tiles(); tile += gridDim.x) {
    const auto sum = BlockSum(SumTile(range, tile, threadIdx.x, mask));
    if (threadIdx.x == 0) atomicAdd(Atomic(target.sums + (tile * range.tile_bytes() >> target.block_shift)), sum);
  }
}

// Tiles behind a difference that is known already are left out; a stale value only makes for more work.
__global__ void __launch_bounds__(kTileThreads) CompareKernel(const Range range, uint64_t* index) {
  for (uint64_t tile = blockIdx.x; tile < range.tiles(); tile += gridDim.x) {
    if (*static_cast<volatile uint64_t*>(index) < tile * range.tile_bytes()) return;
    const uint64_t found = CompareTile(range, tile, threadIdx.x);
    if (found != kNoDifference) atomicMin(Atomic(index), static_cast<unsigned long long>(found));
  }
}

__global__ void __launch_bounds__(kTileThreads)
    CompareValuesKernel(const uint64_t* a, const uint64_t* b, uint64_t count, uint64_t* index) {
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kTileThreads + threadIdx.x; i < count;
       i += gridDim.x * kTileThreads)
    if (a[i] != b[i]) atomicMin(Atomic(index), static_cast<unsigned long long>(i));
}

__global__ void __launch_bounds__(kTileThreads)
    StartKernel(const SumTarget target, uint64_t size_bytes, uint64_t* index) {
  const uint64_t block_bytes = uint64_t{1} << target.block_shift;
  const uint64_t blocks = target.sums ? SumBlocks(size_bytes, block_bytes) : 0;
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (first == 0 && index) *index = kNoDifference;
  for (uint64_t block = first; block < blocks; block += gridDim.x * kTileThreads)
    target.sums[block] = StartOfSum(block, size_bytes, block_bytes);
}

class CudaLauncher final : public TableLauncher {
 public:
  explicit CudaLauncher(const Grid& grid) : grid_(grid) {}
  std::string_view kind() const override { return "cuda"; }

  Status Copy(const MoveTable<FlatMove>& table, const SumTarget& target, KernelStream stream) const override {
    return LaunchCopy(table, target, stream);
  }
  Status Copy(const MoveTable<DeepMove>& table, const SumTarget& target, KernelStream stream) const override {
    return LaunchCopy(table, target, stream);
  }
  Status Cast(ElementType to, ElementType from, const MoveTable<FlatMove>& table, KernelStream stream) const override {
    return LaunchCast(grid_, to, from, table, stream);
  }
  Status Cast(ElementType to, ElementType from, const MoveTable<DeepMove>& table, KernelStream stream) const override {
    return LaunchCast(grid_, to, from, table, stream);
  }

  Status Start(const SumTarget& target, uint64_t size_bytes, uint64_t* index, KernelStream stream) const override {
    const uint64_t values = target.sums ? SumBlocks(size_bytes, uint64_t{1} << target.block_shift) : 1;
    return grid_.Run("launch that starts sums", ValueBlocks(values), [&](uint32_t blocks) {
      StartKernel<<<blocks, kTileThreads, 0, StreamOf(stream)>>>(target, size_bytes, index);
    });
  }

  Status Sum(const Range& range, const SumTarget& target, KernelStream stream) const override {
    return grid_.Run("launch of a checksum", range.tiles(),
                     [&](uint32_t blocks) { SumKernel<<<blocks, kTileThreads, 0, StreamOf(stream)>>>(range, target); });
  }

  Status Compare(const Range& range, uint64_t* index, KernelStream stream) const override {
    return grid_.Run("launch of a comparison", range.tiles(), [&](uint32_t blocks) {
      CompareKernel<<<blocks, kTileThreads, 0, StreamOf(stream)>>>(range, index);
    });
  }

  Status CompareValues(const uint64_t* a, const uint64_t* b, uint64_t count, uint64_t* index,
                       KernelStream stream) const override {
    return grid_.Run("launch of a comparison of sums", ValueBlocks(count), [&](uint32_t blocks) {
      CompareValuesKernel<<<blocks, kTileThreads, 0, StreamOf(stream)>>>(a, b, count, index);
    });
  }

 private:
  static uint64_t ValueBlocks(uint64_t values) { return (values + kTileThreads - 1) / kTileThreads; }

  template <typename MoveType>
  Status LaunchCopy(const MoveTable<MoveType>& table, const SumTarget& target, KernelStream stream) const {
    return grid_.Run("launch of a copy", table.tiles, [&](uint32_t blocks) {
      if (target.sums)
        CopyKernel<true><<<blocks, kTileThreads, 0, StreamOf(stream)>>>(table, target);
      else
        CopyKernel<false><<<blocks, kTileThreads, 0, StreamOf(stream)>>>(table, target);
    });
  }

  const Grid grid_;
};

Status Unavailable(cudaError_t error, const std::string& what) {
  static_cast<void>(cudaGetLastError());
  return {StatusCode::kUnavailable, what + ": " + cudaGetErrorName(error) + " (" +
                                        std::to_string(static_cast<int>(error)) + "), " + cudaGetErrorString(error)};
}

}  // namespace
}  // namespace internal

Result<int> CudaDevices() {
  int devices = 0;
  // Without a driver this is cudaErrorInsufficientDriver, not cudaErrorNoDevice: any error means that there is none.
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess)
    return internal::Unavailable(error, "no CUDA device");
  if (devices == 0) return Status(StatusCode::kUnavailable, "no CUDA device: the driver counts 0");
  return devices;
}

Result<std::shared_ptr<const ByteKernels>> MakeCudaKernels(int device) {
  KINTSUGI_ASSIGN_OR_RETURN(const int devices, CudaDevices());
  if (device < 0 || device >= devices)
    return Status(StatusCode::kUnavailable,
                  "CUDA device " + std::to_string(device) + " of " + std::to_string(devices) + " does not exist");
  int processors = 0;
  if (const cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      error != cudaSuccess)
    return internal::Unavailable(error, "CUDA device " + std::to_string(device));
  const internal::Grid grid{device, static_cast<uint32_t>(processors) * internal::kBlocksPerProcessor};
  return std::shared_ptr<const ByteKernels>(
      std::make_shared<internal::TableKernels>(std::make_unique<internal::CudaLauncher>(grid)));
}

}  // namespace kintsugi

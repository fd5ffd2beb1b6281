#include <isa-l/igzip_lib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "callbacks/state/key.h"
#include "replica/formats/zip/zip.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::zip {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kRatioMax = 1032;  // DEFLATE's: 258 bytes for two bits

uint64_t BytesOf(const Entry& entry) {
  if (entry.unpacked_bytes) return *entry.unpacked_bytes;
  return entry.unreadable.empty() ? entry.size_bytes : 0;
}

uint64_t HalfOfMemory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) / 2 * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Exactly `size_bytes`, and nothing behind them. The library counts in 32 bits.
bool Inflate(std::string_view packed, uint8_t* to, uint64_t size_bytes) {
  constexpr uint64_t kPiece = uint64_t{1} << 30;
  inflate_state state;
  ::isal_inflate_init(&state);
  uint8_t beyond = 0;  // Where one byte too many would go.
  uint64_t taken = 0, given = 0;
  bool overflows = false;
  while (state.block_state != ISAL_BLOCK_FINISH) {
    const uint64_t in = std::min(kPiece, packed.size() - taken), out = std::min(kPiece, size_bytes - given);
    state.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(packed.data())) + taken;
    state.avail_in = static_cast<uint32_t>(in);
    state.next_out = out > 0 ? to + given : &beyond;
    state.avail_out = out > 0 ? static_cast<uint32_t>(out) : 1;
    KINTSUGI_CHECK(in <= UINT32_MAX && out <= UINT32_MAX, "the library counts in 32 bits");
    const int outcome = ::isal_inflate(&state);
    const uint64_t read = in - state.avail_in, made = (out > 0 ? out : 1) - state.avail_out;
    overflows = out == 0 && made > 0;
    if (outcome != ISAL_DECOMP_OK || overflows) return false;
    taken += read;
    given += made;
    if (read == 0 && made == 0 && state.block_state != ISAL_BLOCK_FINISH) return false;  // it is cut off
  }
  return given == size_bytes;
}

}  // namespace

Result<UnpackedBytes> Unpack(std::string_view archive, std::vector<Entry>* entries, const std::string& place) {
  const auto bad = [&](const Entry& entry, const std::string& what) {
    return Status(StatusCode::kDataLoss, "'" + place + "', byte " + std::to_string(entry.at) + ": record '" +
                                             PrintableKey(entry.name) + "' " + what);
  };
  uint64_t total = 0;
  for (const Entry& entry : *entries) {
    if (entry.unpacked_bytes && *entry.unpacked_bytes / kRatioMax > entry.size_bytes)
      return bad(entry, "is said to unpack to " + std::to_string(*entry.unpacked_bytes) +
                            " bytes, more than deflated bytes can");
    total += (BytesOf(entry) + kLineBytes - 1) / kLineBytes * kLineBytes;
    if (total > HalfOfMemory())
      return Status(
          StatusCode::kResourceExhausted,
          "'" + place + "': its records are compressed and need more than " + std::to_string(HalfOfMemory()) +
              " bytes unpacked, half of this machine's memory; unpack it and store it without compression (zip -0)");
  }
  UnpackedBytes unpacked{std::make_unique_for_overwrite<uint8_t[]>(total), total};
  uint64_t at = 0;
  for (Entry& entry : *entries) {
    const uint64_t bytes = BytesOf(entry);
    KINTSUGI_CHECK(at <= total && bytes <= total - at, "'" + place + "': record '" + entry.name + "' of " +
                                                           std::to_string(bytes) + " bytes at byte " +
                                                           std::to_string(at) + " of " + std::to_string(total));
    uint8_t* const to = unpacked.data.get() + at;
    const std::string_view source = archive.substr(entry.at, entry.size_bytes);
    if (entry.unpacked_bytes) {
      if (!Inflate(source, to, bytes))
        return bad(entry,
                   "does not unpack to the " + std::to_string(bytes) + " bytes that its directory says: it is damaged");
      if (Crc32({reinterpret_cast<const char*>(to), bytes}) != entry.crc)
        return bad(entry, "has another CRC than its directory says: it is damaged");
      entry.unreadable.clear();
      entry.unpacked_bytes.reset();
    } else if (bytes > 0) {
      std::memcpy(to, source.data(), bytes);
    }
    const uint64_t end = (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    std::memset(to + bytes, 0, end - bytes);
    entry.at = at;
    entry.size_bytes = bytes;
    at += end;
  }
  KINTSUGI_CHECK(at == total, "'" + place + "': records fill " + std::to_string(at) + " bytes of the " +
                                  std::to_string(total) + " that were made for them");
  return unpacked;
}

}  // namespace kintsugi::formats::zip

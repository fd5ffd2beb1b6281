#include "replica/stream/state_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "replica/stream/in_process_link.h"
#include "runtime/base/random.h"
#include "tests/support/memory_store.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBlock = kStreamBlockBytes;

// A state of several tensors, with sizes around the block size.
class State {
 public:
  explicit State(uint64_t seed, std::vector<uint64_t> sizes = {3 * kBlock + 5, 0, kBlock, 17, 2 * kBlock - 1, 7 * kBlock}) {
    Random random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto& bytes = *buffers_.emplace_back(std::make_unique<std::vector<uint8_t>>(sizes[i]));
      for (auto& byte : bytes) byte = seed == 0 ? 0 : static_cast<uint8_t>(random.Next());
      items.push_back({"t" + std::to_string(i), {.data = bytes.data(), .size_bytes = bytes.size()}});
    }
  }
  std::vector<uint8_t>& bytes(size_t i) { return *buffers_[i]; }
  uint64_t size() const {
    uint64_t sum = 0;
    for (auto& buffer : buffers_) sum += buffer->size();
    return sum;
  }
  bool operator==(const State& other) const {
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (*buffers_[i] != *other.buffers_[i]) return false;
    return true;
  }
  std::vector<StreamItem> items;

 private:
  std::vector<std::unique_ptr<std::vector<uint8_t>>> buffers_;
};

// A link that the test damages, counts or breaks on the sending side.
class TamperedLink final : public Link {
 public:
  explicit TamperedLink(std::unique_ptr<Link> inner) : inner_(std::move(inner)) {}
  Status Send(const Memory& memory, uint64_t offset, uint64_t size, TimePoint deadline, PieceObserver* observer) override {
    // Block messages only: they are the large ones, and messages are told apart by their order.
    const bool is_payload = size >= 1000;
    if (is_payload && ++payloads == 1 && together) together->arrive_and_wait();
    if (die_after_bytes && sent_bytes + size > *die_after_bytes) {
      inner_->Abort();
      return Status(StatusCode::kCommFailure, "the source dies");
    }
    sent_bytes += size;
    if (is_payload && flips.contains(payloads)) {
      std::vector<uint8_t> copy(static_cast<uint8_t*>(memory.data) + offset, static_cast<uint8_t*>(memory.data) + offset + size);
      if (observer) observer->Passed(copy.data(), size);
      copy[size / 2] ^= 1;
      return inner_->Send({.data = copy.data(), .size_bytes = size}, 0, size, deadline, nullptr);
    }
    return inner_->Send(memory, offset, size, deadline, observer);
  }
  Status Receive(void* data, uint64_t size, TimePoint deadline, PieceObserver* observer) override {
    return inner_->Receive(data, size, deadline, observer);
  }
  void Abort() override { inner_->Abort(); }
  Rank peer() const override { return inner_->peer(); }
  std::string_view kind() const override { return inner_->kind(); }

  std::shared_ptr<std::latch> together;  // nobody sends his first payload before each source has been asked for one
  std::map<int, bool> flips;  // numbers of the payload messages to damage, from 1
  std::optional<uint64_t> die_after_bytes;
  int payloads = 0;
  std::atomic<uint64_t> sent_bytes{0};

 private:
  std::unique_ptr<Link> inner_;
};

// One receiver (rank 0) and several sources (ranks 1, 2, ...), each a thread.
class Transfer {
 public:
  explicit Transfer(int sources) {
    for (int i = 0; i < sources; ++i) {
      auto [a, b] = MakeInProcessLinks(Rank(0), Rank(1 + i));
      receiving.push_back(std::move(a));
      sending.push_back(std::make_unique<TamperedLink>(std::move(b)));
    }
    send_status.resize(static_cast<size_t>(sources));
    send_options.resize(static_cast<size_t>(sources));
  }

  // Otherwise one source may have sent everything before another one's thread has begun.
  void LetEachSourceSend() {
    const auto together = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(sending.size()));
    for (auto& link : sending) link->together = together;
  }

  Status Run(State& source, State& target, ReceiveLedger& ledger, Step step = Step(4)) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < sending.size(); ++i)
      threads.emplace_back([&, i] {
        send_status[i] = SendState(*sending[i], source.items, step, send_options[i]);
        sending[i]->Abort();
      });
    std::vector<Link*> links;
    for (auto& link : receiving) links.push_back(link.get());
    const Status status = ReceiveState(links, target.items, step, ledger, receive_options, &result);
    for (auto& link : receiving) link->Abort();
    for (auto& thread : threads) thread.join();
    return status;
  }

  std::vector<std::unique_ptr<Link>> receiving;
  std::vector<std::unique_ptr<TamperedLink>> sending;
  std::vector<Status> send_status;
  std::vector<SendOptions> send_options;
  ReceiveOptions receive_options{.request_blocks = 4};
  StreamResult result;
};

TEST(StateStream, BringsEveryByteUnderEveryChecksum) {
  for (auto algorithm : {ChecksumAlgorithm::kNone, ChecksumAlgorithm::kCrc32c, ChecksumAlgorithm::kXxh3,
                         ChecksumAlgorithm::kMultilinear}) {
    State source(1), target(0);
    Transfer transfer(1);
    transfer.send_options[0] = {.checksum = algorithm, .objects = {1, 2, 3}};
    ReceiveLedger ledger;
    const Status status = transfer.Run(source, target, ledger);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(transfer.send_status[0].ok()) << transfer.send_status[0].ToString();
    EXPECT_TRUE(source == target);
    EXPECT_EQ(transfer.result.bytes_received, source.size());
    EXPECT_EQ(transfer.result.objects[0], (std::vector<uint8_t>{1, 2, 3}));
    EXPECT_EQ(DigestState(source.items), DigestState(target.items));
  }
}

TEST(StateStream, SeveralSourcesShareTheWork) {
  State source(1, {64 * kBlock}), target(0, {64 * kBlock});
  Transfer transfer(3);
  transfer.LetEachSourceSend();
  for (size_t i = 0; i < 3; ++i) transfer.send_options[i].objects = {static_cast<uint8_t>(i)};
  ReceiveLedger ledger;
  ASSERT_TRUE(transfer.Run(source, target, ledger).ok());
  EXPECT_TRUE(source == target);
  EXPECT_EQ(transfer.result.bytes_received, source.size()) << "no block twice";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(transfer.result.bytes_by_source[i], 0u);
    EXPECT_EQ(transfer.result.objects[i], std::vector<uint8_t>{static_cast<uint8_t>(i)});
  }
}

TEST(StateStream, ASourceThatDiesIsReplacedInTheSameCall) {
  State source(1, {64 * kBlock}), target(0, {64 * kBlock});
  Transfer transfer(2);
  // It dies within the first request, which each source has been given before any of them sends a payload.
  transfer.LetEachSourceSend();
  transfer.sending[0]->die_after_bytes = kBlock / 2;
  ReceiveLedger ledger;
  const Status status = transfer.Run(source, target, ledger);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(source == target);
  EXPECT_EQ(transfer.result.source_status[0].code(), StatusCode::kCommFailure);
  // At most the request that was under way is sent twice.
  EXPECT_LE(transfer.result.bytes_received, source.size() + 4 * kBlock);
}

TEST(StateStream, AfterASourcesDeathTheNextCallFetchesOnlyWhatIsMissing) {
  State source(1, {40 * kBlock, 24 * kBlock}), target(0, {40 * kBlock, 24 * kBlock});
  ReceiveLedger ledger;
  Transfer first(1);
  first.sending[0]->die_after_bytes = 30 * kBlock;
  EXPECT_EQ(first.Run(source, target, ledger).code(), StatusCode::kCommFailure);
  const uint64_t kept = ledger.arrived();
  EXPECT_GE(kept, 20u);
  EXPECT_FALSE(ledger.complete());
  Transfer second(1);
  ASSERT_TRUE(second.Run(source, target, ledger).ok());
  EXPECT_TRUE(source == target);
  EXPECT_EQ(second.result.blocks_kept, kept);
  EXPECT_EQ(second.result.bytes_received, source.size() - kept * kBlock);
  EXPECT_TRUE(ledger.complete());
}

TEST(StateStream, ALedgerOfAnotherStepOrStateCountsForNothing) {
  State source(1), target(0);
  ReceiveLedger ledger;
  ASSERT_TRUE(Transfer(1).Run(source, target, ledger, Step(4)).ok());
  State newer(2);
  Transfer transfer(1);
  ASSERT_TRUE(transfer.Run(newer, target, ledger, Step(5)).ok());
  EXPECT_EQ(transfer.result.blocks_kept, 0u);
  EXPECT_TRUE(newer == target);
}

TEST(StateStream, ADamagedBlockIsAskedForOnceMore) {
  for (int sources : {1, 2}) {
    State source(1, {16 * kBlock}), target(0, {16 * kBlock});
    Transfer transfer(sources);
    transfer.LetEachSourceSend();
    transfer.sending[0]->flips[1] = true;
    ReceiveLedger ledger;
    const Status status = transfer.Run(source, target, ledger);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(source == target);
    EXPECT_EQ(transfer.result.blocks_damaged, 1u);
    EXPECT_EQ(transfer.result.bytes_received, source.size() + kBlock);
  }
}

TEST(StateStream, ABlockDamagedTwiceIsDataLossThatNamesEverything) {
  State source(1, {3 * kBlock}), target(0, {3 * kBlock});
  Transfer transfer(1);
  transfer.receive_options.request_blocks = 1;
  for (int message = 1; message < 20; ++message) transfer.sending[0]->flips[message] = true;
  ReceiveLedger ledger;
  const Status status = transfer.Run(source, target, ledger);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  for (const char* part : {"tensor 't0'", "block", "crc32c", "at the source", "rank 1"})
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " in " << status.ToString();
  EXPECT_FALSE(ledger.complete());
  EXPECT_EQ(transfer.send_status[0].code(), StatusCode::kDataLoss) << transfer.send_status[0].ToString();
}

TEST(StateStream, RefusesASourceThatHoldsSomethingElse) {
  const auto run = [](State& source, State& target, Step at_source) {
    auto [receiving, sending] = MakeInProcessLinks(Rank(0), Rank(1));
    Status sent;
    std::thread sender([&, link = sending.get()] { sent = SendState(*link, source.items, at_source); });
    ReceiveLedger ledger;
    StreamResult result;
    const Status status = ReceiveState({receiving.get()}, target.items, Step(4), ledger, {}, &result);
    sender.join();
    EXPECT_EQ(sent.code(), StatusCode::kFailedPrecondition) << sent.ToString();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    return status.message();
  };
  State a(1, {100, 200}), other_size(0, {100, 201}), fewer(0, {100});
  State other_key(0, {100, 200});
  other_key.items[1].key = "elsewhere";
  EXPECT_NE(run(a, other_size, Step(4)).find("'t1': here 201, at the source 200"), std::string::npos);
  EXPECT_NE(run(a, fewer, Step(4)).find("here 1, at the source 2"), std::string::npos);
  EXPECT_NE(run(a, other_key, Step(4)).find("'elsewhere'"), std::string::npos);
  EXPECT_NE(run(a, a, Step(5)).find("step: here 4, at the source 5"), std::string::npos);
}

TEST(StateStream, AbortOfTheLinksEndsBothSides) {
  State source(1, {200 * kBlock}), target(0, {200 * kBlock});
  Transfer transfer(1);
  std::thread watchdog([&] {
    while (transfer.sending[0]->sent_bytes < 5 * kBlock) std::this_thread::sleep_for(100us);
    transfer.receiving[0]->Abort();
  });
  ReceiveLedger ledger;
  const Status status = transfer.Run(source, target, ledger);
  watchdog.join();
  EXPECT_TRUE(status.code() == StatusCode::kCancelled || (status.ok() && source == target)) << status.ToString();
}

TEST(StateStream, ASilentSourceEndsAtItsLimitAndTheOtherTakesOver) {
  State source(1, {16 * kBlock}), target(0, {16 * kBlock});
  auto [silent, nobody] = MakeInProcessLinks(Rank(0), Rank(1));
  auto [alive, sending] = MakeInProcessLinks(Rank(0), Rank(2));
  std::thread sender([&, link = sending.get()] { EXPECT_TRUE(SendState(*link, source.items, Step(4)).ok()); });
  ReceiveLedger ledger;
  StreamResult result;
  ReceiveOptions options;
  options.limits.bytes_per_second_min = 1e12;
  options.limits.patience = std::chrono::milliseconds(300);
  const Status status = ReceiveState({silent.get(), alive.get()}, target.items, Step(4), ledger, options, &result);
  sender.join();
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(source == target);
  EXPECT_EQ(result.source_status[0].code(), StatusCode::kDeadlineExceeded);
  const std::string& said = result.source_status[0].message();
  EXPECT_NE(said.find("rank 1"), std::string::npos);
  const size_t limit = said.find("limit ");
  ASSERT_NE(limit, std::string::npos) << said;
  EXPECT_LE(std::stoi(said.substr(limit + 6)), 300) << said;
}

TEST(StateStream, AnEmptyStateStillBringsItsObjects) {
  State source(1, {}), target(0, {});
  Transfer transfer(2);
  transfer.send_options[1].objects = {9};
  ReceiveLedger ledger;
  ASSERT_TRUE(transfer.Run(source, target, ledger).ok());
  EXPECT_EQ(transfer.result.objects[1], std::vector<uint8_t>{9});
}

TEST(DigestState, DependsOnEveryByteKeyAndOrder) {
  State a(1), b(1);
  const uint64_t digest = DigestState(a.items);
  EXPECT_EQ(digest, DigestState(b.items));
  b.bytes(5).back() ^= 1;
  EXPECT_NE(digest, DigestState(b.items));
  b.bytes(5).back() ^= 1;
  std::swap(b.items[0], b.items[2]);
  EXPECT_NE(digest, DigestState(b.items));
  std::swap(b.items[0], b.items[2]);
  b.items[1].key = "u";
  EXPECT_NE(digest, DigestState(b.items));
}

}  // namespace
}  // namespace kintsugi

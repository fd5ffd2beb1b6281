// What is said to etcd and made of its answers; tests/multiproc/witness.py speaks to a real one.
#include "runtime/launcher/lease/etcd.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kintsugi::etcd {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

net::HttpAnswer Ok(const std::string& body) { return {200, body}; }

TEST(Etcd, ReadsLeasesAndTheirEnd) {
  const auto granted = ReadLease(Ok(R"({"header":{"revision":"7"},"ID":"7587888888888888888","TTL":"4"})"));
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted->id, 7587888888888888888);
  EXPECT_EQ(granted->length, 4s);
  EXPECT_EQ(ReadRenewed(Ok(R"({"result":{"ID":"5","TTL":"3"}})"))->length, 3s);
  EXPECT_EQ(ReadRenewed(Ok(R"({"result":{"ID":"5"}})"))->length, 0s);  // it has run out
}

TEST(Etcd, TheLeaseGoesToWhoeverPutsTheKey) {
  EXPECT_TRUE(ReadClaimed(Ok(R"({"succeeded":true,"responses":[{"response_put":{}}]})"), 5)->held);
  const std::string taken = R"({"responses":[{"response_range":{"kvs":[{"value":"bm9kZSAx","lease":"6"}]}}]})";
  const auto other = ReadClaimed(Ok(taken), 5);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->held);
  EXPECT_EQ(other->holder, "node 1");
  EXPECT_TRUE(ReadClaimed(Ok(taken), 6)->held);  // ours: the first claim's answer was lost
  const auto nobody = ReadClaimed(Ok(R"({"responses":[{"response_range":{}}]})"), 5);
  ASSERT_TRUE(nobody.ok());
  EXPECT_FALSE(nobody->held);
  EXPECT_EQ(nobody->holder, "");
}

TEST(Etcd, AClaimNeedsAFreeKeyAndNoNewerGeneration) {
  const json claim = json::parse(Claim("job/1", "node 0", 5, Generation(9)).body);
  ASSERT_EQ(claim["compare"].size(), 2u);
  EXPECT_EQ(claim["compare"][0]["target"], "VERSION");
  EXPECT_EQ(claim["compare"][1]["target"], "VALUE");
  EXPECT_EQ(claim["compare"][1]["result"], "LESS");
  EXPECT_EQ(claim["compare"][1]["value"], "MDAwMDAwMDAwMDAwMDAwMDAwMTA=");  // 10, in twenty digits
  EXPECT_EQ(claim["success"][0]["request_put"]["lease"], "5");
}

TEST(Etcd, WhatIsNoAnswerIsRefused) {
  for (const char* body :
       {"", "null", "[]", "{", "{}", R"({"ID":"x","TTL":"4"})", R"({"ID":"5","TTL":"-1"})", R"({"ID":[]})",
        R"({"result":5})", R"({"result":{"ID":"0"}})", R"({"responses":[]})", R"({"responses":[5]})",
        R"({"responses":{"a":1}})", R"({"error":"etcdserver: no leader","code":14})"}) {
    EXPECT_FALSE(ReadLease(Ok(body)).ok()) << body;
    EXPECT_FALSE(ReadRenewed(Ok(body)).ok()) << body;
    EXPECT_FALSE(ReadClaimed(Ok(body), 5).ok()) << body;
  }
  EXPECT_FALSE(ReadLease({503, R"({"ID":"5","TTL":"4"})"}).ok());
  EXPECT_FALSE(ReadDone({404, "{}"}).ok());
  for (const char* kvs : {"5", "[5]", "{}", R"([{"lease":{}}])"})
    EXPECT_FALSE(ReadClaimed(Ok(R"({"responses":[{"response_range":{"kvs":)" + std::string(kvs) + "}}]}"), 5)->held)
        << kvs;
}

}  // namespace
}  // namespace kintsugi::etcd

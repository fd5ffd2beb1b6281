// The opcodes that are read: what torch, numpy and Paddle write in protocols 2 to 5. All others are refused by number:
// among them INST, OBJ, EXT and PERSID, the text forms of numbers, and buffers outside of the pickle.
//
// Source of the numbers: CPython's Lib/pickletools.py.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>

namespace kintsugi::formats::pickle {

enum class Opcode : uint8_t {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = 0x2e,
  kMark = 0x28,
  kPopMark = 0x31,
  kPop = 0x30,
  kNone = 0x4e,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 0x4a,
  kBinInt1 = 0x4b,
  kBinInt2 = 0x4d,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 0x47,
  kBinUnicode = 0x58,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kShortBinString = 0x55,
  kBinBytes = 0x42,
  kShortBinBytes = 0x43,
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyTuple = 0x29,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTuple = 0x74,
  kEmptyList = 0x5d,
  kList = 0x6c,
  kEmptyDict = 0x7d,
  kDict = 0x64,
  kEmptySet = 0x8f,
  kFrozenSet = 0x91,
  kAppend = 0x61,
  kAppends = 0x65,
  kAddItems = 0x90,
  kSetItem = 0x73,
  kSetItems = 0x75,
  kBinPut = 0x71,
  kLongBinPut = 0x72,
  kMemoize = 0x94,
  kBinGet = 0x68,
  kLongBinGet = 0x6a,
  kGlobal = 0x63,
  kStackGlobal = 0x93,
  kReduce = 0x52,
  kNewObj = 0x81,
  kBuild = 0x62,
  kBinPersId = 0x51,
};

inline std::string OpcodeName(Opcode code) {
  switch (code) {
    case Opcode::kProto:
      return "PROTO";
    case Opcode::kFrame:
      return "FRAME";
    case Opcode::kStop:
      return "STOP";
    case Opcode::kMark:
      return "MARK";
    case Opcode::kPopMark:
      return "POP_MARK";
    case Opcode::kPop:
      return "POP";
    case Opcode::kNone:
      return "NONE";
    case Opcode::kNewTrue:
      return "NEWTRUE";
    case Opcode::kNewFalse:
      return "NEWFALSE";
    case Opcode::kBinInt:
      return "BININT";
    case Opcode::kBinInt1:
      return "BININT1";
    case Opcode::kBinInt2:
      return "BININT2";
    case Opcode::kLong1:
      return "LONG1";
    case Opcode::kLong4:
      return "LONG4";
    case Opcode::kBinFloat:
      return "BINFLOAT";
    case Opcode::kBinUnicode:
      return "BINUNICODE";
    case Opcode::kShortBinUnicode:
      return "SHORT_BINUNICODE";
    case Opcode::kBinUnicode8:
      return "BINUNICODE8";
    case Opcode::kShortBinString:
      return "SHORT_BINSTRING";
    case Opcode::kBinBytes:
      return "BINBYTES";
    case Opcode::kShortBinBytes:
      return "SHORT_BINBYTES";
    case Opcode::kBinBytes8:
      return "BINBYTES8";
    case Opcode::kByteArray8:
      return "BYTEARRAY8";
    case Opcode::kEmptyTuple:
      return "EMPTY_TUPLE";
    case Opcode::kTuple1:
      return "TUPLE1";
    case Opcode::kTuple2:
      return "TUPLE2";
    case Opcode::kTuple3:
      return "TUPLE3";
    case Opcode::kTuple:
      return "TUPLE";
    case Opcode::kEmptyList:
      return "EMPTY_LIST";
    case Opcode::kList:
      return "LIST";
    case Opcode::kEmptyDict:
      return "EMPTY_DICT";
    case Opcode::kDict:
      return "DICT";
    case Opcode::kEmptySet:
      return "EMPTY_SET";
    case Opcode::kFrozenSet:
      return "FROZENSET";
    case Opcode::kAppend:
      return "APPEND";
    case Opcode::kAppends:
      return "APPENDS";
    case Opcode::kAddItems:
      return "ADDITEMS";
    case Opcode::kSetItem:
      return "SETITEM";
    case Opcode::kSetItems:
      return "SETITEMS";
    case Opcode::kBinPut:
      return "BINPUT";
    case Opcode::kLongBinPut:
      return "LONG_BINPUT";
    case Opcode::kMemoize:
      return "MEMOIZE";
    case Opcode::kBinGet:
      return "BINGET";
    case Opcode::kLongBinGet:
      return "LONG_BINGET";
    case Opcode::kGlobal:
      return "GLOBAL";
    case Opcode::kStackGlobal:
      return "STACK_GLOBAL";
    case Opcode::kReduce:
      return "REDUCE";
    case Opcode::kNewObj:
      return "NEWOBJ";
    case Opcode::kBuild:
      return "BUILD";
    case Opcode::kBinPersId:
      return "BINPERSID";
  }
  constexpr char kDigits[] = "0123456789abcdef";
  const auto number = static_cast<uint8_t>(code);
  return std::string("0x") + kDigits[number >> 4] + kDigits[number & 15];
}

}  // namespace kintsugi::formats::pickle

// Scratch memory of one thread: taken in order, given back all at once, kept for the next call.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "vector.h"

// Fresh pages cost more than what is computed in them, so that they are kept; huge ones cost less.
class Arena {
 public:
  ~Arena() { free(memory_); }
  Arena() = default;
  Arena(const Arena &) = delete;

  // What was taken before is given back; at least `floats` are there to be taken.
  void reset(int64_t floats) {
    used_ = 0;
    if (floats <= size_) return;
    free(memory_);
    const size_t wanted = (size_t)floats * 4, unit = wanted < HUGE ? PAGE : HUGE;
    const size_t bytes = (wanted + unit - 1) / unit * unit;
    memory_ = (float *)aligned_alloc(unit, bytes);
    size_ = memory_ ? (int64_t)(bytes / 4) : 0;
#ifdef MADV_HUGEPAGE
    if (memory_ && unit == HUGE) madvise(memory_, bytes, MADV_HUGEPAGE);
#endif
  }
  bool failed() const { return memory_ == nullptr; }
  float *take(int64_t floats) {
    float *p = memory_ + used_;
    used_ += rounded(floats);
    return p;
  }
  // What a request takes: whole cache lines, and room to load vectors beyond its end.
  static int64_t rounded(int64_t floats) { return (floats + 2 * LANES + 15) / 16 * 16; }

 private:
  static constexpr size_t HUGE = 2 << 20, PAGE = 4096;
  float *memory_ = nullptr;
  int64_t size_ = 0, used_ = 0;
};

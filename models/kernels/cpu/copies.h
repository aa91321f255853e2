// Products of packed rotations, dealt out to threads.
#pragma once
#include <atomic>

#include "rotations.h"
#include "threads.h"

// work(copy, arena) for every copy, with so many floats to be taken; 1 where memory ran out.
template <class Work> inline int over_copies(const RotationShape &s, int64_t floats, Work work) {
  std::atomic<int> failed{0};
  const double each = double(s.stages) * s.size * s.size;
  const int64_t most = std::min({s.threads, s.copies, int64_t(each * s.copies / 4e6) + 1});
  in_parallel(Runs{std::max<int64_t>(1, most), s.copies}, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t copy = begin; copy < end; copy++) {
      tile_arena.reset(floats);
      if (tile_arena.failed()) { failed = 1; return; }
      work(copy, tile_arena);
    }
  });
  return failed;
}

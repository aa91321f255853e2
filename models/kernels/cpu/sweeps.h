// The C interface of sweeps over the stages of packed rotations.
#pragma once
#include "rotations.h"

extern "C" {
// Turns every stage once, the first one first, to where tr(X Q) is largest for the product Q with all
// other stages as they are. X Q becomes (new Q) X, and the angles the new ones. 0, or 1 where memory
// ran out. All are contiguous.
int rotations_sweep(const RotationShape *shape,
                    const int64_t *partners,  // [K, n]; one that is alone is its own partner
                    double *matrices,         // [G, n, n], X Q
                    double *angles);          // [G, K, n]; those of a pair have opposite signs
}

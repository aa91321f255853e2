/* The Fourier transform of `size` complex numbers (re | im), without a factor before it: into y, by
   stages whose lengths are the prime factors of size. w has the roots of one, (cos | sin) of
   2 pi k / size; t and y take turns. A `sign` of -1 gives the transform, 1 its inverse. */
static void fourier(float *restrict y, float *restrict t, const float *restrict w, int size, float sign)
{
    int length = size, stride = 1;
    while (length > 1) {
        int prime = 2, part;
        while (length % prime != 0) {
            prime++;
        }
        part = length / prime;
        for (int k = 0; k < part; k++) {
            for (int r = 0; r < prime; r++) {
                for (int q = 0; q < stride; q++) {
                    float re = 0.0f, im = 0.0f;
                    const int to = q + stride * (prime * k + r), turned = stride * k * r;
                    const float c = w[turned], s = sign * w[size + turned];
                    for (int j = 0; j < prime; j++) {
                        const int from = q + stride * (k + part * j), at = size / prime * (j * r % prime);
                        const float d = w[at], e = sign * w[size + at];
                        re += d * y[from] - e * y[size + from];
                        im += d * y[size + from] + e * y[from];
                    }
                    t[to] = c * re - s * im;
                    t[size + to] = c * im + s * re;
                }
            }
        }
        for (int j = 0; j < 2 * size; j++) {
            y[j] = t[j];
        }
        length = part;
        stride *= prime;
    }
}

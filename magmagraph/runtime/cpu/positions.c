/* The element that a position along an axis means, in [0, extent): negative ones count from the
   end; those outside wrap around, or mean the nearest. */
static inline int64_t mg_position(int64_t at, int64_t extent, int64_t wrap)
{
    if (wrap) {
        at %= extent;
        return at < 0 ? at + extent : at;
    }
    at += at < 0 ? extent : 0;
    at = at < 0 ? 0 : at;
    return at < extent ? at : extent - 1;
}


/* The checksum of record batches, which Python alone computes too slowly. */

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const uint8_t *data, size_t length)
{
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t index = 0; index < 256; index++) {
            uint32_t value = index;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
            table[index] = value;
        }
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t at = 0; at < length; at++)
        crc = crc >> 8 ^ table[(crc ^ data[at]) & 0xFF];
    return crc ^ 0xFFFFFFFFu;
}

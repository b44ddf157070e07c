/* Fuzz target: the input is the text of a profile. What is accepted is written as it was read, and
   a small lake is prewarmed by it. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fuzz.h"

static void prewarm_by(const gmlake_profile *profile) {
  gmlake_mock_desc device;
  gmlake_backend *mock;
  gmlake_desc desc;
  gmlake_stats stats;
  gmlake *lake;
  memset(&device, 0, sizeof device);
  memset(&desc, 0, sizeof desc);
  device.bookkeeping_only = 1;
  device.capacity_bytes = (size_t)256 << 20;
  REQUIRE(gmlake_mock_create(&device, &mock) == GMLAKE_OK);
  desc.backend = mock;
  REQUIRE(gmlake_create(&desc, &lake) == GMLAKE_OK);
  REQUIRE(gmlake_prewarm(lake, profile, NULL) == GMLAKE_OK);
  REQUIRE(gmlake_check(lake) == GMLAKE_OK);
  stats.struct_bytes = 0;
  REQUIRE(gmlake_get_stats(lake, &stats) == GMLAKE_OK);
  REQUIRE(stats.reserved_bytes >= device.capacity_bytes ||
          stats.reserved_bytes >= profile->peak_bytes);
  REQUIRE(gmlake_destroy(lake) == GMLAKE_OK);
  gmlake_mock_destroy(mock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char again[GMLAKE_PROFILE_TEXT_BYTES], *text = (char *)malloc(size + !size);
  gmlake_profile profile;
  REQUIRE(text);
  if (size) memcpy(text, data, size); /* at the end of a heap block, so that a sanitizer watches */
  memset(&profile, 0, sizeof profile);
  if (gmlake_profile_load(text, size, &profile) == GMLAKE_OK) {
    REQUIRE(profile.large_percent <= 100);
    REQUIRE(gmlake_profile_save(&profile, again, sizeof again) == GMLAKE_OK);
    REQUIRE(size - !text[size - 1] == strlen(again) && !memcmp(text, again, strlen(again)));
    prewarm_by(&profile);
  } else {
    REQUIRE(!profile.peak_bytes && !profile.resident_bytes);
  }
  free(text);
  return 0;
}

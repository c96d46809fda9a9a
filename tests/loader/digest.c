/* Prints the sha256 of files, as the loader's source computes it. */
#include "pjrt_loader.c"

int main(int count, char **words) {
  for (int i = 1; i < count; i++) {
    FILE *file = fopen(words[i], "rb");
    char digits[65];
    if (file == NULL || !hash_file(file, digits)) return 1;
    fclose(file);
    puts(digits);
  }
  return 0;
}

/* Data of the toy plugin's library. Each of its pages is read: a page that is gone is a SIGBUS. */
#include <stddef.h>

__asm__(
    ".section .rodata\n"
    ".balign 4096\n"
    "pages_begin: .incbin \"pages.bin\"\n"
    "pages_end:\n"
    ".text\n");

extern const char pages_begin[], pages_end[];
static volatile char page;

static void read_pages(void) {
  for (const char *at = pages_begin; at < pages_end; at += 4096) page = *at;
}

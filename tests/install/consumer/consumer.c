/* The C ABI, used as a C11 program of somebody else would. Exits 0 if it behaves. */
#include <moment/moment.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const moment_status status = moment_ping("/nowhere/momentd.sock", 0.0);
  printf("libmoment %s: %s: %s\n", moment_version(), moment_status_name(status),
         moment_last_error());
  if (status != MOMENT_UNAVAILABLE) return 1;
  return strstr(moment_last_error(), "/nowhere/momentd.sock") == NULL;
}

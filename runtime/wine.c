/* The function that Rust's library takes from Windows for random numbers and that Wine 8 lacks; for tests under Wine. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG)size); }

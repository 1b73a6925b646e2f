// Only there so that test_headers.h is compiled.

int main() { return 0; }

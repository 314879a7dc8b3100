package hardware

import "testing"

func BenchmarkHostMemory(b *testing.B) {
	host := OpenHost("")
	for b.Loop() {
		if _, err := host.Memory(); err != nil {
			b.Fatal(err)
		}
	}
}

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

// BenchmarkHostActivity is what the monitor reads of the host once a second.
func BenchmarkHostActivity(b *testing.B) {
	watch := WatchHost("")
	b.ReportAllocs()
	for b.Loop() {
		watch.Activity()
	}
}

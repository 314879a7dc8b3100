package memory_test

import (
	"fmt"
	"os"

	"github.com/asrconfig/asrconfig-go/core/memory"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// The example of README.md: a step at a shape that was not traced.
func ExampleModel_Simulate() {
	raw, err := os.ReadFile("testdata/example.json")
	if err != nil {
		panic(err)
	}
	recorded, err := trace.Decode(tracetest.Pack(raw)) // trace.ReadFile for a trace file
	if err != nil {
		panic(err)
	}
	model, err := memory.New(recorded)
	if err != nil {
		panic(err)
	}
	batch, length, steps := int64(7), int64(777), 2
	estimate, err := model.Simulate(memory.Request{Batch: &batch, Length: &length, Steps: &steps})
	if err != nil {
		panic(err)
	}
	fmt.Println(estimate.PeakAllocated, "bytes at most, in", estimate.AtPeak.Segment, estimate.AtPeak.Phase)
	fmt.Println(estimate.AtPeak.Components)
	// Output:
	// 133632 bytes at most, in micro backward
	// map[activations:87040 gradients:4096 inputs:22016 optimizer:8192 parameters:4096 workspaces:8192]
}

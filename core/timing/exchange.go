package timing

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Bytes per second of an all-reduce: assumptions.
var (
	nvlinkRate = Range{60e9, 120e9, 250e9} // between cards with NVLink
	pciRate    = Range{4e9, 10e9, 20e9}    // between cards without
)

// Exchange is what GPUs of one kind take to add up float32 gradients in a ring: each sends and
// receives its share of them twice.
func Exchange(g profile.GPU, gradientBytes float64, devices int) Range {
	if devices < 2 {
		return Range{}
	}
	link := pciRate
	if hasNVLink(g.Name) {
		link = nvlinkRate
	}
	return Takes(2*float64(devices-1)/float64(devices)*gradientBytes, link)
}

// hasNVLink guesses from the driver's name: server modules have it, PCIe cards mostly do not.
func hasNVLink(name string) bool {
	for _, mark := range []string{"SXM", "HBM3", "NVL", "GH200", "H200", "B200"} {
		if strings.Contains(name, mark) && !strings.Contains(name, "MIG") {
			return true
		}
	}
	return false
}

// Capability reads a compute capability such as "8.9"; 0 when it is unknown.
func Capability(g profile.GPU) float64 {
	value, err := strconv.ParseFloat(g.ComputeCapability, 64)
	if err != nil || !(value >= 0 && value < 100) {
		return 0
	}
	return value
}

// Takes is how long an amount takes at a rate: fastest at the best one.
func Takes(amount float64, rate Range) Range {
	return Range{amount / rate.High, amount / rate.Likely, amount / rate.Low}
}

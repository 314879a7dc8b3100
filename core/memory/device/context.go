package device

import (
	"math"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// A context is a fixed part and one that grows with the threads that the GPU can hold at once: the
// driver keeps stack and scheduling state for each of them. Fitted by least squares to points
// (context_test.go has them, with their errors), for PyTorch 2 with CUDA 11.7 or newer, which load
// kernels when first used; before, all were loaded at once, 700 to 1100 MiB. The points are from
// reports of out-of-memory errors: Zheng-Chong/CatVTON#133, hpcaitech/Open-Sora#697,
// DengKaiCQ/VGGT-Long#6, DINGYANB/MTVCrafter#21, TianheWu/CoSeR#10, Wan-Video/Wan2.1#465,
// ali-vilab/VACE#56, 3DTopia/Phidias-Diffusion#8.
const (
	contextBase      = 31 * mib
	contextPerThread = 2.25 * mib / 1024 // bytes per resident thread
	contextHigh      = 1.3               // of the fit; the points lie between 0.83 and 1.12 of it
)

// residentThreads is how many threads a multiprocessor holds at once, by compute capability: the
// table "Technical Specifications per Compute Capability" of NVIDIA's CUDA programming guide. A
// capability that is not in it is taken as 2048.
var residentThreads = map[string]int{
	"3.7": 2048, "5.0": 2048, "5.2": 2048, "6.0": 2048, "6.1": 2048, "7.0": 2048, "7.5": 1024,
	"8.0": 2048, "8.6": 1536,
	"8.7": 1536, "8.9": 1536, "9.0": 2048, "10.0": 2048, "10.3": 2048, "12.0": 1536, "12.1": 1536,
}

// multiprocessors are the smallest and the largest number on cards of a compute capability, for
// names not in cards.
var multiprocessors = map[string][2]int{
	"3.7": {13, 13}, "6.0": {56, 56}, "6.1": {5, 30}, "7.0": {80, 80}, "7.5": {14, 72},
	"8.0": {56, 108}, "8.6": {16, 84},
	"8.9": {20, 142}, "9.0": {114, 144}, "10.0": {132, 160}, "12.0": {20, 188},
}

// cards are the multiprocessors by the driver's name without "NVIDIA", "Tesla" and "GeForce": from
// NVIDIA's data sheets, and from torch.cuda.get_device_properties where it differs (A10G: 80).
var cards = map[string]int{
	"k80": 13, "p100-pcie-16gb": 56, "t4": 40, "v100-sxm2-16gb": 80, "v100-pcie-16gb": 80,
	"v100-sxm2-32gb": 80,
	"rtx 2080 ti":    68, "rtx 3060": 28, "rtx 3080": 68, "rtx 3090": 82, "rtx 4060 ti": 34,
	"rtx 4070 ti": 60, "rtx 4080": 76,
	"rtx 4090": 128, "rtx 5090": 170, "a10": 72, "a10g": 80, "a30": 56, "a40": 84, "rtx a4000": 48,
	"rtx a5000": 64,
	"rtx a6000": 84, "l4": 58, "l40s": 142, "rtx 6000 ada generation": 142, "a100-sxm4-40gb": 108,
	"a100-pcie-40gb": 108,
	"a100-sxm4-80gb": 108, "a100 80gb pcie": 108, "h100 80gb hbm3": 132, "h100 pcie": 114,
	"h100 nvl":    132,
	"gh200 480gb": 132, "gh200 120gb": 132, "h200": 132, "b200": 148,
}

// context is the table's answer for a card of so many multiprocessors, and the most that it may be.
func context(low, high, threads int) (bytes, most uint64) {
	middle := (fitted(low, threads) + fitted(high, threads)) / 2
	return uint64(math.Round(middle)), uint64(fitted(high, threads) * contextHigh)
}

func (g GPU) residentThreads() int {
	if threads, listed := residentThreads[g.ComputeCapability]; listed {
		return threads
	}
	return 2048
}

func fitted(sms, threads int) float64 { return contextBase + contextPerThread*float64(sms*threads) }

// multiprocessors returns the range of the card's number.
func (g GPU) multiprocessors() (low, high int, err error) {
	if g.SMs != nil {
		if *g.SMs < 1 || *g.SMs > 1024 {
			err = fault.New(fault.InvalidArgument, "leave sms out to look it up",
				"a GPU of %d multiprocessors", *g.SMs)
		}
		return *g.SMs, *g.SMs, err
	}
	if sms, ok := cardMultiprocessors(g.Name); ok {
		return sms, sms, nil
	}
	if bounds, listed := multiprocessors[g.ComputeCapability]; listed {
		return bounds[0], bounds[1], nil
	}
	return 10, 200, nil
}

// cardMultiprocessors looks a driver's name up. A MIG slice "… MIG 3g.40gb" has 3 of 7 parts of its
// card, of 4 on the A30.
func cardMultiprocessors(name string) (int, bool) {
	card, slice, sliced := strings.Cut(strings.ToLower(name), " mig ")
	for _, maker := range []string{"nvidia ", "tesla ", "geforce "} {
		card = strings.TrimPrefix(card, maker)
	}
	sms, ok := cards[card]
	if !ok || !sliced {
		return sms, ok
	}
	parts := 7
	if card == "a30" {
		parts = 4
	}
	part, _, _ := strings.Cut(slice, "g.")
	share, err := strconv.Atoi(part)
	if err != nil || share < 1 || share > parts {
		return 0, false
	}
	return sms * share / parts, true
}

package gpus

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

func TestCatalogueIsSound(t *testing.T) {
	cards := All()
	require.Len(t, cards, 38)
	owner := map[string]string{}
	for _, e := range cards {
		require.NotEmpty(t, e.DriverNames, e.Key)
		for _, name := range e.names() {
			if other, ok := owner[name]; ok {
				require.Equal(t, e.Key, other, "two cards are called %q", name)
			}
			owner[name] = e.Key
		}
		assert.Regexp(t, `^\d{1,2}\.\d$`, e.ComputeCapability, e.Key)
		assert.True(t, e.MemoryTotalBytes > 8<<30 && e.MemoryTotalBytes < 256<<30, "%s: %d B", e.Key, e.MemoryTotalBytes)
		for _, other := range e.OtherMemoryBytes {
			assert.InEpsilon(t, float64(e.MemoryTotalBytes), float64(other), 0.08, e.Key)
		}
		for _, figure := range []*float64{e.BandwidthGBs, e.FP32TFLOPS} {
			require.NotNil(t, figure, e.Key)
			assert.Positive(t, *figure, e.Key)
		}
		assert.Equal(t, e.ComputeCapability < "6" && !strings.HasPrefix(e.ComputeCapability, "1"), e.TensorTFLOPS == nil, e.Key)
		assert.Equal(t, e.MIG, e.PowerWatts == nil, e.Key)
		assert.True(t, e.ReleaseYear >= 2014 && e.ReleaseYear <= 2026, e.Key)
		assert.NotEmpty(t, e.MemorySource, e.Key)
		assert.NotEmpty(t, e.FiguresSource, e.Key)
		if strings.Contains(e.FiguresSource, "not checked") {
			assert.True(t, e.Unverified, e.Key)
		}
	}
}

func TestMIGSlicesAreSharesOfTheirCard(t *testing.T) {
	card, ok := lookup("H100")
	require.True(t, ok)
	for name, share := range map[string]struct{ compute, memory float64 }{
		"H100 MIG 1g.10gb": {16.0 / 132, 1.0 / 8}, "H100 MIG 2g.20gb": {32.0 / 132, 2.0 / 8}, "H100 MIG 3g.40gb": {60.0 / 132, 4.0 / 8},
	} {
		slice, ok := lookup(name)
		require.True(t, ok, name)
		assert.InEpsilon(t, *card.TensorTFLOPS*share.compute, *slice.TensorTFLOPS, 0.01, name)
		assert.InEpsilon(t, *card.BandwidthGBs*share.memory, *slice.BandwidthGBs, 0.01, name)
		assert.InEpsilon(t, float64(card.MemoryTotalBytes)*share.memory, float64(slice.MemoryTotalBytes), 0.025, name)
	}
}

// parsed is the GPU of a name without a count.
func parsed(name string) (profile.GPU, error) {
	entry, count, err := Parse(name)
	if err != nil {
		return profile.GPU{}, err
	}
	if count != 1 {
		return profile.GPU{}, fmt.Errorf("%q is %d GPUs", name, count)
	}
	return entry.GPU(), nil
}

func TestParseNames(t *testing.T) {
	tests := []struct {
		driverName string
		names      []string
	}{
		{"Tesla T4", []string{"T4", "t4", " T4 ", "Tesla T4", "nvidia tesla t4", "NVIDIA-T4", "T4-16GB", "T4 16 GB", "t4_15g"}},
		{"NVIDIA L4", []string{"L4", "nvidia l4", "L4-24GB", "L4 24GiB"}},
		{"NVIDIA A100-SXM4-40GB", []string{"A100", "A100-40GB", "a100 40g", "A100_40", "A100-SXM4-40GB", "A100-40GB SXM"}},
		{"NVIDIA A100-SXM4-80GB", []string{"A100-80GB", "A100 80G", "a10080gb", "A100-80", "A100-80GB SXM"}},
		{"NVIDIA A100 80GB PCIe", []string{"A100 80GB PCIe", "a100-80gb-pcie"}},
		{"NVIDIA H100 80GB HBM3", []string{"H100", "H100-80GB", "H100 SXM"}},
		{"NVIDIA H100 PCIe", []string{"H100 PCIe"}},
		{"NVIDIA H100 80GB HBM3 MIG 1g.10gb", []string{"H100 MIG 1g.10gb", "h100 1g.10gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}},
		{"Tesla V100-SXM2-16GB", []string{"V100", "V100-16GB", "v100 16"}},
		{"Tesla V100-SXM2-32GB", []string{"V100-32GB", "v100 32g"}},
		{"NVIDIA GeForce RTX 4090", []string{"4090", "RTX 4090", "rtx4090", "GeForce RTX 4090", "RTX 4090 24GB"}},
		{"NVIDIA GeForce RTX 3090", []string{"rtx 3090", "RTX_3090"}},
		{"NVIDIA GeForce RTX 3060", []string{"RTX 3060", "3060 12GB"}},
		{"NVIDIA RTX 6000 Ada Generation", []string{"RTX 6000 Ada", "6000 ada"}},
		{"NVIDIA H200", []string{"H200", "H200-141GB"}},
		{"NVIDIA B200", []string{"B200 192GB"}},
		{"NVIDIA A10G", []string{"A10G", "A10G-24GB"}},
		{"NVIDIA A10", []string{"A10", "A10-24GB"}},
		{"Tesla K80", []string{"K80", "K80 12GB"}},
	}
	for _, test := range tests {
		for _, name := range test.names {
			gpu, err := parsed(name)
			require.NoError(t, err, name)
			assert.Equal(t, test.driverName, gpu.Name, name)
			assert.Equal(t, "catalogue", gpu.Source)
			assert.Empty(t, gpu.UUID)
			assert.Nil(t, gpu.MemoryFreeBytes)
		}
	}
	t4, err := parsed("T4")
	require.NoError(t, err)
	assert.Equal(t, uint64(15360*mib), t4.MemoryTotalBytes)
	assert.False(t, t4.BF16)
	for _, name := range []string{"L4", "A100", "3090", "B200", "RTX 5090"} {
		gpu, err := parsed(name)
		require.NoError(t, err)
		assert.True(t, gpu.BF16, name)
	}
}

func TestUnknownNames(t *testing.T) {
	for name, suggestion := range map[string]string{
		"A100-60GB": "A100-40GB SXM", "H10": "A10", "T40": "T4", "RTX 4060 Ti 8GB": "RTX 4060 Ti 16G", "L4 48GB": "L40S",
		"": "T4", "\xff\x00": "T4", strings.Repeat("x", 1<<20): "V100",
	} {
		_, err := parsed(name)
		require.Error(t, err, fault.Shorten(name))
		assert.Equal(t, fault.NotFound, fault.From(err).Code)
		assert.Contains(t, fault.From(err).Hint, suggestion, fault.Shorten(name))
		assert.Less(t, len(err.Error()), 500)
	}
}

func TestMatchNeedsTheMemoryToAgree(t *testing.T) {
	for _, test := range []struct {
		name  string
		mib   uint64
		known bool
	}{
		// 3 % below the smallest known size
		{"Tesla T4", 15360, true}, {"Tesla T4", 15109, true}, {"Tesla T4", 14600, false},
		// the 8 GB card
		{"NVIDIA GeForce RTX 4060 Ti", 16380, true}, {"NVIDIA GeForce RTX 4060 Ti", 8188, false},
		{"A30", 24576, true},         // drivers before R470 leave "NVIDIA" out
		{"NVIDIA A40", 49140, true},  // ECC off
		{"NVIDIA H20", 97871, false}, // same memory as a GH200
		{"NVIDIA H100 80GB HBM3 MIG", 81559, false}, {"Tesla T4", 0, false}, {"", 15360, false}, {"Tesla T4", math.MaxUint64 / mib, false},
	} {
		entry, ok := Match(test.name, test.mib*mib)
		assert.Equal(t, test.known, ok, "%s with %d MiB", test.name, test.mib)
		if ok {
			assert.NotNil(t, entry.BandwidthGBs)
		}
	}
}

func TestTheCatalogueCannotBeChangedFromOutside(t *testing.T) {
	gpu, err := parsed("T4")
	require.NoError(t, err)
	*gpu.BandwidthGBs = 1
	All()[0].Key = "changed"
	again, err := parsed("T4")
	require.NoError(t, err)
	assert.Equal(t, 320.0, *again.BandwidthGBs)
	assert.Equal(t, "K80", All()[0].Key)
}

func TestNativeBF16(t *testing.T) {
	for capability, native := range map[string]bool{"3.7": false, "7.5": false, "8.0": true, "8.9": true, "12.0": true, "": false, "x": false, "-1.9": false} {
		assert.Equal(t, native, NativeBF16(capability), capability)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"T4", "2xT4", "A100-40GB", "rtx 4090 24GB", "", "-", "g", " 1g", "ſ", "İ", strings.Repeat("9", 200)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		entry, count, err := Parse(name)
		if err != nil {
			require.NotEmpty(t, fault.From(err).Hint)
			return
		}
		require.Positive(t, entry.MemoryTotalBytes)
		require.True(t, count >= 1 && count <= maxGPUs, count)
	})
}

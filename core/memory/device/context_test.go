package device

import (
	"os"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"
)

// points are what reports of out-of-memory errors with PyTorch 2 leave when allocated and cached
// memory are taken from what the process had in use; each is good to about 15 MiB, because the
// messages round.
var points = []struct {
	card, capability string
	mib              float64
	error            float64 // of the fit, measured over fitted less 1
}{
	{"Tesla T4", "7.5", 135, 0.12},
	{"Tesla T4", "7.5", 100, -0.17},
	{"NVIDIA RTX A4000", "8.6", 210, 0.09},
	{"NVIDIA RTX 6000 Ada Generation", "8.9", 430, -0.16},
	{"NVIDIA A100-SXM4-40GB", "8.0", 500, -0.03},
	{"NVIDIA GeForce RTX 5090", "12.0", 595, -0.02},
	{"NVIDIA H100 NVL", "9.0", 675, 0.08},
	{"NVIDIA GeForce RTX 4090", "8.9", 503, 0.09},
}

func TestFit(t *testing.T) {
	for _, point := range points {
		figure, err := gpu(point.card, point.capability).contextFigure()
		require.NoError(t, err)
		require.InDelta(t, point.error, point.mib*mib/float64(figure.Bytes)-1, 0.006, point.card)
		require.LessOrEqual(t, float64(figure.Low), point.mib*mib, point.card)
		require.GreaterOrEqual(t, float64(figure.High), point.mib*mib, point.card)
	}
}

// Contexts without PyTorch, or without a kernel run yet, lie below the fit:
// ggml-org/llama.cpp#23604, invoke-ai/InvokeAI#9413.
func TestBareContextsAreSmaller(t *testing.T) {
	for _, row := range []struct {
		card, capability string
		mib              uint64
	}{{"NVIDIA GeForce RTX 4060 Ti", "8.9", 107}, {"NVIDIA GeForce RTX 3090", "8.6", 256}} {
		figure, err := gpu(row.card, row.capability).contextFigure()
		require.NoError(t, err)
		require.Less(t, row.mib*mib, figure.Bytes)
		require.Greater(t, 2*row.mib*mib, figure.Bytes)
	}
}

func gpu(name, capability string) (g GPU) {
	g.Name, g.ComputeCapability = name, capability
	return g
}

func TestMultiprocessors(t *testing.T) {
	eleven, none := 11, 0
	for _, row := range []struct {
		gpu         GPU
		least, most int
	}{
		{gpu("Tesla T4", "7.5"), 40, 40},
		{gpu("nvidia a10g", "8.6"), 80, 80},
		{gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0"), 18, 18},
		{gpu("NVIDIA A30 MIG 2g.12gb", "8.0"), 28, 28},
		{gpu("NVIDIA A30 MIG 9g.12gb", "8.0"), 56, 108},
		{gpu("NVIDIA RTX A2000", "8.6"), 16, 84},
		{gpu("NVIDIA X1", "13.0"), 10, 200},
		{GPU{SMs: &eleven}, 11, 11},
	} {
		low, high, _, err := row.gpu.multiprocessors()
		require.NoError(t, err)
		require.Equal(t, []int{row.least, row.most}, []int{low, high}, row.gpu.Name)
	}
	_, _, _, err := GPU{SMs: &none}.multiprocessors()
	require.ErrorContains(t, err, "0 multiprocessors")
}

// Every card of the catalogue has its number of multiprocessors and its resident threads here.
func TestCatalogueIsCovered(t *testing.T) {
	text, err := os.ReadFile("../../gpus/gpus.json")
	require.NoError(t, err)
	var entries []struct {
		DriverNames       []string `json:"driver_names"`
		ComputeCapability string   `json:"compute_capability"`
	}
	require.NoError(t, json.Unmarshal(text, &entries))
	require.NotEmpty(t, entries)
	for _, e := range entries {
		require.Contains(t, residentThreads, e.ComputeCapability)
		for _, name := range e.DriverNames {
			_, ok := cardMultiprocessors(name)
			require.True(t, ok, name)
		}
	}
}

package device

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
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

func described(t *testing.T, r Request) Terms {
	t.Helper()
	terms, err := Describe(r)
	require.NoError(t, err)
	return terms
}

func TestFit(t *testing.T) {
	for _, point := range points {
		terms := described(t, Request{GPU: gpu(point.card, point.capability)})
		require.InDelta(t, point.error, point.mib*mib/float64(terms.ContextBytes)-1, 0.006, point.card)
		require.GreaterOrEqual(t, float64(terms.High), point.mib*mib, point.card)
	}
}

// Contexts without PyTorch, or without a kernel run yet, lie below the fit:
// ggml-org/llama.cpp#23604, invoke-ai/InvokeAI#9413.
func TestBareContextsAreSmaller(t *testing.T) {
	for _, row := range []struct {
		card, capability string
		mib              uint64
	}{{"NVIDIA GeForce RTX 4060 Ti", "8.9", 107}, {"NVIDIA GeForce RTX 3090", "8.6", 256}} {
		terms := described(t, Request{GPU: gpu(row.card, row.capability)})
		require.Less(t, row.mib*mib, terms.ContextBytes)
		require.Greater(t, 2*row.mib*mib, terms.ContextBytes)
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
		low, high, err := row.gpu.multiprocessors()
		require.NoError(t, err)
		require.Equal(t, []int{row.least, row.most}, []int{low, high}, row.gpu.Name)
	}
	_, err := Describe(Request{GPU: GPU{SMs: &none}})
	require.ErrorContains(t, err, "0 multiprocessors")
	require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
}

func TestNCCL(t *testing.T) {
	request := Request{GPU: gpu("NVIDIA A100-SXM4-80GB", "8.0")}
	alone := described(t, request)
	request.NCCL = true
	for gpus, bytes := range map[int]uint64{2: 544_000_000, 4: 688_000_000} {
		request.GPUs = &gpus
		terms := described(t, request)
		require.Equal(t, []uint64{alone.ContextBytes, bytes, alone.High + ncclCluster}, []uint64{terms.ContextBytes, terms.NCCLBytes, terms.High})
	}
}

// The multiprocessors of every card of the catalogue are found, and its resident threads are here.
func TestCatalogueIsCovered(t *testing.T) {
	for _, e := range gpus.All() {
		require.Contains(t, residentThreads, e.ComputeCapability)
		for _, name := range e.DriverNames {
			sms, ok := cardMultiprocessors(name)
			require.True(t, ok, name)
			require.True(t, e.MIG || float64(sms) == e.Multiprocessors, name)
		}
	}
}

//go:build linux && cgo

package hardware

import (
	"encoding/binary"
	"math"
	"os"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// allGauges is a driver with every function.
func allGauges() functions {
	found, _ := findFunctions(func(string) error { return nil })
	return found
}

// workingCard is a device whose figures the test changes.
type workingCard struct {
	*mock.Device
	power, temperature uint32
	reasons, ecc       uint64
	nvlink             uint64 // KiB in each direction
	xids               []uint64
	result             nvml.Return
	hopper             uint32 // has counters
	tensor             float64
	sampled            []nvml.GpmSample
	freed              int
}

func newCard() *workingCard {
	c := &workingCard{Device: fakeGPU("NVIDIA A100"), power: 250_500, temperature: 60}
	c.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 90, Memory: 30}, c.result }
	c.GetPowerUsageFunc = func() (uint32, nvml.Return) { return c.power, c.result }
	c.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return c.temperature, c.result }
	c.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1410, c.result }
	c.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return c.reasons, c.result }
	c.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return c.ecc, c.result }
	c.GetPcieThroughputFunc = func(way nvml.PcieUtilCounter) (uint32, nvml.Return) {
		return map[nvml.PcieUtilCounter]uint32{nvml.PCIE_UTIL_RX_BYTES: 300, nvml.PCIE_UTIL_TX_BYTES: 20}[way], c.result
	}
	c.GetFieldValuesFunc = func(fields []nvml.FieldValue) nvml.Return {
		for i := range fields {
			binary.NativeEndian.PutUint64(fields[i].Value[:], c.nvlink)
		}
		return c.result
	}
	c.GpmQueryDeviceSupportFunc = func() (nvml.GpmSupport, nvml.Return) { return nvml.GpmSupport{IsSupportedDevice: c.hopper}, c.result }
	c.GpmSampleGetFunc = func(sample nvml.GpmSample) nvml.Return { c.sampled = append(c.sampled, sample); return c.result }
	c.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	return c
}

// driver makes the card's samples, which are told apart by their order, and its queues of errors.
func (c *workingCard) driver() *mock.Interface {
	sample := func() (nvml.GpmSample, nvml.Return) {
		return &mock.GpmSample{FreeFunc: func() nvml.Return { c.freed++; return nvml.SUCCESS }}, nvml.SUCCESS
	}
	metrics := func(ask *nvml.GpmMetricsGetType) nvml.Return {
		n := len(c.sampled)
		if n < 2 || ask.Sample1 != c.sampled[n-2] || ask.Sample2 != c.sampled[n-1] || ask.NumMetrics != 2 {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		for i := range ask.Metrics[:2] {
			ask.Metrics[i].Value = map[nvml.GpmMetricId]float64{nvml.GPM_METRIC_SM_UTIL: 75, nvml.GPM_METRIC_ANY_TENSOR_UTIL: c.tensor}[nvml.GpmMetricId(ask.Metrics[i].MetricId)]
		}
		return nvml.SUCCESS
	}
	return &mock.Interface{EventSetCreateFunc: c.sets, GpmSampleAllocFunc: sample, GpmMetricsGetFunc: metrics}
}

func (c *workingCard) sets() (nvml.EventSet, nvml.Return) {
	return &mock.EventSet{
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			if len(c.xids) == 0 {
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
			xid := c.xids[0]
			c.xids = c.xids[1:]
			return nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: xid}, nvml.SUCCESS
		},
	}, nvml.SUCCESS
}

func kinds(events []runlog.Event) (found []string) {
	for _, e := range events {
		found = append(found, e.Kind+": "+e.Text)
	}
	return found
}

func TestWhatACardDoes(t *testing.T) {
	card := newCard()
	w := newWatcher(card, allGauges(), card.driver())
	at := time.Unix(10, 0)
	w.now = func() time.Time { return at }
	r, events := w.read()
	assert.Empty(t, events)
	assert.Equal(t, []float64{0.9, 0.3, 250.5, 60, 1410, 0, 300e3, 20e3, 0},
		[]float64{r.Utilization, r.MemoryBusy, r.PowerW, r.Temperature, r.ClockMHz, r.Throttle, r.PCIeIn, r.PCIeOut, r.ECC})
	assert.True(t, math.IsNaN(r.NVLink), "a rate needs two readings")

	at, card.nvlink, card.ecc, card.xids = at.Add(2*time.Second), 1024, 2, []uint64{31, 79}
	card.reasons = nvml.ClocksThrottleReasonGpuIdle | nvml.ClocksThrottleReasonHwSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown |
		nvml.ClocksThrottleReasonSwPowerCap
	r, events = w.read()
	assert.Equal(t, []float64{1 << 20, runlog.ThrottlePower | runlog.ThrottleHeat, 300e3}, []float64{r.NVLink, r.Throttle, r.PCIeIn})
	assert.Equal(t, []string{
		"throttled: heat throttles the GPU", "ecc: 2 uncorrected memory errors, 2 more than before",
		"xid: the driver reports Xid 31", "xid: the driver reports Xid 79",
	}, kinds(events))
	assert.Len(t, card.GetPcieThroughputCalls(), 2, "the bus is watched at every tenth reading only")
}

// TestCountersOfTheHardware: from the second reading on, between the newest two samples; a share
// that cannot be is left out.
func TestCountersOfTheHardware(t *testing.T) {
	card := newCard()
	card.hopper, card.tensor = 1, 40
	w := newWatcher(card, allGauges(), card.driver())
	r, _ := w.read()
	assert.True(t, math.IsNaN(r.SMActive) && math.IsNaN(r.TensorActive), "a share needs two samples")
	for range 3 {
		r, _ = w.read()
		assert.Equal(t, []float64{0.75, 0.4}, []float64{r.SMActive, r.TensorActive})
	}
	card.tensor = 140
	r, _ = w.read()
	assert.Equal(t, 0.75, r.SMActive)
	assert.True(t, math.IsNaN(r.TensorActive))
	w.close()
	assert.Equal(t, 2, card.freed)
}

func TestNoCountersBeforeHopper(t *testing.T) {
	card := newCard()
	w := newWatcher(card, allGauges(), card.driver())
	for range 2 {
		r, events := w.read()
		assert.Empty(t, events)
		assert.True(t, math.IsNaN(r.SMActive) && math.IsNaN(r.TensorActive))
	}
	assert.Len(t, card.GpmQueryDeviceSupportCalls(), 1)
	w.close()
	assert.Zero(t, card.freed)
}

func TestACardWithoutSomethingIsNotAskedAgain(t *testing.T) {
	card := newCard()
	card.result = nvml.ERROR_NOT_SUPPORTED
	w := newWatcher(card, functions{clockEvents: true}, &mock.Interface{EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }})
	for range 3 {
		r, events := w.read()
		assert.Empty(t, events, "a card may lack anything")
		for _, value := range r.Values(nil) {
			assert.True(t, math.IsNaN(value))
		}
	}
	assert.Len(t, card.GetPowerUsageCalls(), 1)
	assert.Len(t, card.GetUtilizationRatesCalls(), 1)
}

func TestAFailingDriverIsAskedAgain(t *testing.T) {
	card := newCard()
	card.result = nvml.ERROR_GPU_IS_LOST
	w := newWatcher(card, allGauges(), card.driver())
	r, _ := w.read()
	assert.True(t, math.IsNaN(r.PowerW))
	card.result = nvml.SUCCESS
	card.power, card.temperature = math.MaxUint32, 4000
	r, events := w.read()
	assert.True(t, math.IsNaN(r.PowerW) && math.IsNaN(r.Temperature))
	assert.Equal(t, []string{"nonsense: the driver reports impossible power", "nonsense: the driver reports impossible temperature"}, kinds(events))
	card.power = 100_000
	r, _ = w.read()
	assert.Equal(t, 100.0, r.PowerW)
}

func TestMemoryOfOtherProcesses(t *testing.T) {
	size := func(bytes uint64) *uint64 { return &bytes }
	root := machineOf(t, map[string]string{
		"proc/" + self + "/task/" + self + "/children": "41", "proc/41/task/41/children": "", "proc/50/stat": "", "proc/51/stat": "",
	})
	own := uint32(os.Getpid())
	for name, test := range map[string]struct {
		listed   []profile.Process
		used     uint64
		expected float64
	}{
		"ours and a worker's":          {[]profile.Process{{PID: own, MemoryBytes: size(5)}, {PID: 41, MemoryBytes: size(5)}}, 10, 0},
		"others beside ours":           {[]profile.Process{{PID: own, MemoryBytes: size(5)}, {PID: 50, MemoryBytes: size(7)}, {PID: 51, MemoryBytes: size(1)}}, 13, 8},
		"a number of the host":         {[]profile.Process{{PID: own, MemoryBytes: size(5)}, {PID: 7777, MemoryBytes: size(7)}}, 12, math.NaN()},
		"a size that is not told":      {[]profile.Process{{PID: 50}}, 12, math.NaN()},
		"an idle card":                 {nil, 1 << 20, 0},
		"a card in use without a list": {nil, 1 << 30, math.NaN()},
		"ours is not told, others' is": {[]profile.Process{{PID: own}, {PID: 50, MemoryBytes: size(7)}}, 12, 7},
	} {
		o := newOtherProcesses(root, 1)
		o.top = os.Getpid()
		u := unit{
			memory:    func() (reading, error) { return reading{used: test.used, total: 1 << 40}, nil },
			processes: func() []profile.Process { return test.listed },
		}
		found := o.of(0, &u)
		if math.IsNaN(test.expected) {
			assert.True(t, math.IsNaN(found), name)
			continue
		}
		assert.Equal(t, test.expected, found, name)
		u.processes = func() []profile.Process { t.Error("listed too often"); return nil }
		o.of(0, &u)
	}
}

package hardware

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machineOf writes a tree of files and gives its root.
func machineOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	put(t, root, files)
	return root
}

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

var self = strconv.Itoa(os.Getpid())

// processStat is /proc/<pid>/stat of a process that has used ticks, a quarter of them in the
// kernel.
func processStat(parent, ticks, pages int) string {
	return fmt.Sprintf("12 (a name) with) S %d 1 1 0 -1 0 0 0 0 0 %d %d 0 0 20 0 1 0 5 900 %d 1", parent, ticks-ticks/4, ticks/4, pages)
}

func idleMachine() map[string]string {
	return map[string]string{
		"proc/meminfo":     "MemTotal: 100 kB\nSwapTotal:  2048 kB\nSwapFree:   1024 kB\n",
		"proc/self/stat":   processStat(1, 700, 100),
		"proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0,2\n",
		"proc/stat":        "cpu  9 9 9 9\ncpu0 100 0 0 900 0 0 0 0\ncpu1 0 0 0 1000 0 0 0 0\ncpu2 0 0 0 1000 0 0 0 0\nintr 5\n",
		"proc/diskstats":   "259 0 nvme0n1 1 0 10 0 1 0 20 0\n259 1 nvme0n1p1 1 0 9 0 1 0 9 0\n 7 0 loop0 1 0 99 0 0 0 0 0\n",
		"proc/net/dev":     "Inter-| Receive\n face |bytes\n  lo: 77 0 0 0 0 0 0 0 77 0 0 0 0 0 0 0\neth0: 1000 0 0 0 0 0 0 0 500 0 0 0 0 0 0 0\n",
		"proc/" + self + "/task/" + self + "/children": "4001 4002 ",
		"proc/" + self + "/task/77/children":           "4003",
		"proc/4001/task/4001/children":                 "4004",
		"proc/4001/stat":                               processStat(1, 300, 10),
		"proc/4004/stat":                               processStat(4001, 9000, 5),
	}
}

func TestTheHostByItsFiles(t *testing.T) {
	root := machineOf(t, idleMachine())
	watch := WatchHost(root)
	at := time.Unix(100, 0)
	watch.now = func() time.Time { return at }
	r, events := watch.Activity()
	page := float64(os.Getpagesize())
	assert.Empty(t, events)
	assert.Equal(t, []float64{1 << 20, 115 * page, 15 * page}, []float64{r.SwapUsed, r.TreeRSS, r.WorkersRSS})
	assert.True(t, math.IsNaN(r.CPUShare) && math.IsNaN(r.TreeCPU) && math.IsNaN(r.DiskRead) && math.IsNaN(r.Sent), "rates need two readings")
	assert.Equal(t, 2, watch.Properties().CPUs)

	at = at.Add(2 * time.Second)
	put(t, root, map[string]string{
		"proc/stat":      "cpu  9\ncpu0 150 0 0 950 0 0 0 0\ncpu1 500 0 0 1000 0 0 0 0\ncpu2 0 0 0 1060 40 0 0 0\n",
		"proc/diskstats": "259 0 nvme0n1 1 0 14 0 1 0 28 0\n259 1 nvme0n1p1 1 0 99 0 1 0 99 0\n",
		"proc/self/stat": processStat(1, 730, 100),
		"proc/4001/stat": processStat(1, 306, 10),
		"proc/4004/stat": processStat(4001, 8000, 5), // another one with its number
		"proc/net/dev":   "eth0: 3000 0 0 0 0 0 0 0 400 0 0 0 0 0 0 0\n",
	})
	r, events = watch.Activity()
	assert.Empty(t, events)
	assert.Equal(t, []float64{0.25, 0.5}, []float64{r.CPUShare, r.BusiestCore}, "of the processors 0 and 2")
	assert.InDelta(t, (30+6)/200.0, r.TreeCPU, 1e-9)
	assert.Equal(t, []float64{1024, 2048, 1000}, []float64{r.DiskRead, r.DiskWritten, r.Received})
	assert.True(t, math.IsNaN(r.Sent), "a counter that fell has no rate")
}

func TestThreadsThatWaitForACore(t *testing.T) {
	const began, full, most = "cpu0 0 0 0 900\ncpu2 0 0 0 1000\n", "cpu0 100 0 0 900\ncpu2 100 0 0 1000\n", "cpu0 170 0 0 930\ncpu2 200 0 0 1000\n"
	for _, row := range []struct {
		name            string
		stat            string // after the second second
		rank            bool   // a launcher started the process
		ended           int    // ticks of children that ended in the second second
		others, waiting float64
	}{
		{"all cores are busy", "cpu0 200 0 0 900\ncpu2 200 0 0 1000\n", false, 0, 0.8, 0.75},
		{"workers of a short epoch", "cpu0 200 0 0 900\ncpu2 200 0 0 1000\n", false, 70, 0.1, 0.75},
		{"cores are free", most, false, 0, 0.5, 0},
		{"one of several ranks", most, true, 0, math.NaN(), math.NaN()},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.rank {
				t.Setenv("LOCAL_RANK", "0")
			}
			root := machineOf(t, idleMachine())
			watch := WatchHost(root)
			at := time.Unix(100, 0)
			watch.now = func() time.Time { return at }
			for i, stat := range []string{began, full, row.stat} {
				put(t, root, map[string]string{
					"proc/stat": stat,
					// of 200 ticks a second
					"proc/self/stat":                               strings.Replace(processStat(1, 120*i, 100), " 0 0 20 ", fmt.Sprintf(" %d 0 20 ", 500+i/2*row.ended), 1),
					"proc/self/task/70/schedstat":                  fmt.Sprintf("9 %d 5", 500_000_000*i),
					"proc/self/task/71/schedstat":                  fmt.Sprintf("9 %d 5", 250_000_000*i),
					fmt.Sprintf("proc/self/task/8%d/schedstat", i): "9 7000000000 5", // new each time
				})
				watch.Activity()
				at = at.Add(time.Second)
				require.NoError(t, os.RemoveAll(filepath.Join(root, "proc/self/task", fmt.Sprintf("8%d", i))))
				if i == 1 {
					assert.True(t, math.IsNaN(watch.CPUUse().Waiting), "two readings make a rate")
				}
			}
			use := watch.CPUUse()
			if row.rank {
				assert.True(t, math.IsNaN(use.Others) && math.IsNaN(use.Waiting))
				return
			}
			assert.InDeltaSlice(t, []float64{2, row.others, row.waiting}, []float64{use.Cores, use.Others, use.Waiting}, 1e-9)
		})
	}
}

func TestAnotherProcessTree(t *testing.T) {
	files := idleMachine()
	files["proc/4001/task/4001/children"] = "4004 "
	watch := WatchHost(machineOf(t, files)).Of(4001)
	r, events := watch.Activity()
	page := float64(os.Getpagesize())
	assert.Empty(t, events)
	assert.Equal(t, []float64{15 * page, 5 * page}, []float64{r.TreeRSS, r.WorkersRSS})

	r, events = WatchHost(machineOf(t, idleMachine())).Of(5000).Activity()
	assert.True(t, math.IsNaN(r.TreeRSS), "it has ended")
	require.Len(t, events, 1)
	assert.Equal(t, "/proc/5000/stat cannot be read", events[0].Text)
}

func TestWhatCannotBeReadIsAbsentAndNamed(t *testing.T) {
	files := idleMachine()
	for _, gone := range []string{"proc/meminfo", "proc/stat", "proc/net/dev", "proc/self/stat", "proc/diskstats"} {
		delete(files, gone)
	}
	watch := WatchHost(machineOf(t, files))
	var names []string
	for range 2 {
		r, events := watch.Activity()
		names = nil
		for _, e := range events {
			names = append(names, e.Text)
		}
		for _, value := range r.Values(nil) {
			assert.True(t, math.IsNaN(value))
		}
	}
	assert.Equal(t, "/proc/meminfo cannot be read, /proc/self/stat cannot be read, /proc/stat cannot be read, /proc/net/dev cannot be read",
		strings.Join(names, ", "), "a container may have no disks")
}

func TestACPUQuotaIsWhatTheShareIsOf(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"v2": {
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/job/cpu.max": "50000 100000", "sys/fs/cgroup/job/cpu.stat": "usage_usec 1000000\n",
		},
		"v1": {
			"proc/self/cgroup": "1:cpu,cpuacct:/job\n", "proc/self/mountinfo": "1 0 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
			"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
			"sys/fs/cgroup/cpu/job/cpuacct.usage": "1000000000",
		},
	} {
		root := machineOf(t, idleMachine())
		put(t, root, files)
		watch := WatchHost(root)
		at := time.Unix(100, 0)
		watch.now = func() time.Time { return at }
		watch.Activity()
		at = at.Add(time.Second)
		put(t, root, map[string]string{"proc/self/stat": processStat(1, 720, 100), "proc/stat": "cpu 9\ncpu0 150 0 0 950\ncpu2 0 0 0 1100\n"})
		put(t, root, map[string]string{"sys/fs/cgroup/job/cpu.stat": "usage_usec 1125000\n", "sys/fs/cgroup/cpu/job/cpuacct.usage": "1125000000"})
		r, _ := watch.Activity()
		assert.InDelta(t, 0.25, r.CPUShare, 1e-9, name)
		assert.InDelta(t, 0.4, r.TreeCPU, 1e-9, name+": 20 of the 50 ticks that half a core has")
	}
}

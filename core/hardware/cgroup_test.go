package hardware

import (
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const mib, gib = 1 << 20, 1 << 30

// machine is a fake tree: file -> text. It starts as a host with 64 GiB, 60 of them available, and
// 8 processors.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"/proc/meminfo":     "MemTotal:       67108864 kB\nMemFree:        50331648 kB\nMemAvailable:   62914560 kB\n",
		"/proc/cpuinfo":     cpuinfo(8),
		"/proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-7\n",
	}
	maps.Copy(all, files)
	maps.DeleteFunc(all, func(_, text string) bool { return text == "" }) // taken away
	put(t, root, all)
	return root
}

func cpuinfo(processors int) string {
	var text strings.Builder
	for i := range processors {
		text.WriteString("processor\t: " + string(rune('0'+i)) + "\nmodel name\t: Test CPU @ 2.00GHz\nphysical id\t: 0\ncpu cores\t: 4\n\n")
	}
	return text.String()
}

const (
	v2Mount    = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mounts   = "33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	v1NoLimit  = "9223372036854771712\n"
	k8sV1Mount = "33 31 0:30 /kubepods/pod1/c1 /sys/fs/cgroup/memory ro,relatime master:5 - cgroup cgroup rw,memory\n"
)

func TestHostMemoryLimits(t *testing.T) {
	v2 := func(extra map[string]string) map[string]string {
		files := map[string]string{"/proc/self/cgroup": "0::/a/b\n", "/proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + v2Mount}
		maps.Copy(files, extra)
		return files
	}
	tests := []struct {
		name             string
		files            map[string]string
		total, available uint64
		source           string
	}{
		{"no cgroup files at all", nil, 64 * gib, 60 * gib, ""},
		{"v2 without a limit", v2(map[string]string{"/sys/fs/cgroup/a/b/memory.max": "max\n"}), 64 * gib, 60 * gib, ""},
		{"v2 limit, page cache given back", v2(map[string]string{
			"/sys/fs/cgroup/a/b/memory.max":     "17179869184\n",
			"/sys/fs/cgroup/a/b/memory.current": "8589934592\n",
			"/sys/fs/cgroup/a/b/memory.stat":    "anon 1\nactive_file 4\ninactive_file 2147483648\n",
		}), 16 * gib, 10 * gib, "/sys/fs/cgroup/a/b/memory.max"},
		{"v2 limit of an ancestor", v2(map[string]string{
			"/sys/fs/cgroup/a/b/memory.max": "17179869184\n", "/sys/fs/cgroup/a/memory.max": "4294967296\n",
		}), 4 * gib, 4 * gib, "/sys/fs/cgroup/a/memory.max"},
		{"the wider ancestor is the fuller one", v2(map[string]string{
			"/sys/fs/cgroup/a/b/memory.max": "8589934592\n", "/sys/fs/cgroup/a/b/memory.current": "1073741824\n",
			"/sys/fs/cgroup/a/memory.max": "17179869184\n", "/sys/fs/cgroup/a/memory.current": "16106127360\n",
		}), 8 * gib, 1 * gib, "/sys/fs/cgroup/a/b/memory.max"},
		{"the narrower group is the fuller one", v2(map[string]string{
			"/sys/fs/cgroup/a/b/memory.max": "8589934592\n", "/sys/fs/cgroup/a/b/memory.current": "7516192768\n",
			"/sys/fs/cgroup/a/memory.max": "17179869184\n", "/sys/fs/cgroup/a/memory.current": "7516192768\n",
		}), 8 * gib, 1 * gib, "/sys/fs/cgroup/a/b/memory.max"},
		{"v2 memory.high counts", v2(map[string]string{
			"/sys/fs/cgroup/a/b/memory.max": "17179869184\n", "/sys/fs/cgroup/a/b/memory.high": "8589934592\n",
		}), 8 * gib, 8 * gib, "/sys/fs/cgroup/a/b/memory.high"},
		{"usage beyond the limit", v2(map[string]string{
			"/sys/fs/cgroup/a/b/memory.max": "1073741824\n", "/sys/fs/cgroup/a/b/memory.current": "2147483648\n",
		}), 1 * gib, 0, "/sys/fs/cgroup/a/b/memory.max"},
		{"more page cache than usage", v2(map[string]string{
			"/sys/fs/cgroup/a/b/memory.max": "1073741824\n", "/sys/fs/cgroup/a/b/memory.current": "1\n",
			"/sys/fs/cgroup/a/b/memory.stat": "inactive_file 18446744073709551615\n",
		}), 1 * gib, 1 * gib, "/sys/fs/cgroup/a/b/memory.max"},
		{"limit above the host's RAM", v2(map[string]string{"/sys/fs/cgroup/a/b/memory.max": "18446744073709551615\n"}), 64 * gib, 60 * gib, ""},
		{"cgroup namespace", map[string]string{
			"/proc/self/cgroup": "0::/\n", "/proc/self/mountinfo": v2Mount, "/sys/fs/cgroup/memory.max": "2147483648\n",
		}, 2 * gib, 2 * gib, "/sys/fs/cgroup/memory.max"},
		{"outside the namespace's root", map[string]string{
			"/proc/self/cgroup": "0::/../../x\n", "/proc/self/mountinfo": strings.Replace(v2Mount, " / ", " /../.. ", 1), "/sys/fs/cgroup/memory.max": "2147483648\n",
		}, 2 * gib, 2 * gib, "/sys/fs/cgroup/memory.max"},
		{"the mount shows a part", map[string]string{
			"/proc/self/cgroup": "4:memory:/kubepods/pod1/c1/inner\n", "/proc/self/mountinfo": k8sV1Mount,
			"/sys/fs/cgroup/memory/inner/memory.limit_in_bytes": v1NoLimit, "/sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n",
		}, 3 * gib, 3 * gib, "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		{"the mount shows another part", map[string]string{
			"/proc/self/cgroup": "4:memory:/docker/x\n", "/proc/self/mountinfo": k8sV1Mount, "/sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n",
		}, 3 * gib, 3 * gib, "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		{"of two mounts the one that shows the group", map[string]string{
			"/proc/self/cgroup":                           "4:memory:/docker/x\n",
			"/proc/self/mountinfo":                        k8sV1Mount + "35 31 0:30 /docker /mnt/c\\040g rw - cgroup cgroup rw,memory\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "3221225472\n", "/mnt/c g/x/memory.limit_in_bytes": "1073741824\n",
		}, 1 * gib, 1 * gib, "/mnt/c g/x/memory.limit_in_bytes"},
		{"v1 no limit", map[string]string{
			"/proc/self/cgroup": "4:memory:/a\n", "/proc/self/mountinfo": v1Mounts,
			"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": v1NoLimit, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1073741824\n",
			"/sys/fs/cgroup/memory/a/memory.stat": "hierarchical_memory_limit " + v1NoLimit,
		}, 64 * gib, 60 * gib, ""},
		{"v1 limit", map[string]string{
			"/proc/self/cgroup": "4:memory:/a\n", "/proc/self/mountinfo": v1Mounts,
			"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8589934592\n", "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": "4294967296\n",
			"/sys/fs/cgroup/memory/a/memory.stat": "inactive_file 5\ntotal_inactive_file 1073741824\n",
		}, 8 * gib, 5 * gib, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
		{"v1 limit above the container's view", map[string]string{
			"/proc/self/cgroup": "4:memory:/a\n", "/proc/self/mountinfo": v1Mounts,
			"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": v1NoLimit, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1073741824\n",
			"/sys/fs/cgroup/memory/a/memory.stat": "hierarchical_memory_limit 4294967296\n",
		}, 4 * gib, 3 * gib, "/sys/fs/cgroup/memory/a/memory.stat"},
		{"hybrid: memory on v1 beside an empty v2", map[string]string{
			"/proc/self/cgroup": "4:memory:/a\n0::/a\n", "/proc/self/mountinfo": v1Mounts + strings.Replace(v2Mount, "/sys/fs/cgroup", "/sys/fs/cgroup/unified", 1),
			"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8589934592\n",
		}, 8 * gib, 8 * gib, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
		{"hybrid: memory on v2", map[string]string{
			"/proc/self/cgroup": "3:cpu,cpuacct:/a\n0::/a\n", "/proc/self/mountinfo": v1Mounts + strings.Replace(v2Mount, "/sys/fs/cgroup", "/sys/fs/cgroup/unified", 1),
			"/sys/fs/cgroup/unified/a/memory.max": "8589934592\n",
		}, 8 * gib, 8 * gib, "/sys/fs/cgroup/unified/a/memory.max"},
		{"a membership that climbs out", map[string]string{
			"/proc/self/cgroup": "0::/../../../../etc\n", "/proc/self/mountinfo": v2Mount, "/etc/memory.max": "1\n", "/sys/fs/cgroup/memory.max": "max\n",
		}, 64 * gib, 60 * gib, ""},
		{"garbage tables", map[string]string{
			"/proc/self/cgroup": "::\n0\n4:memory\n4:memory:relative\n\xff:\n", "/proc/self/mountinfo": " - cgroup2\n1 2 - cgroup2 x\n - \ncgroup\n",
		}, 64 * gib, 60 * gib, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			memory, err := OpenHost(machine(t, test.files)).Memory()
			require.NoError(t, err)
			assert.Equal(t, uint64(64*gib), memory.HostTotalBytes)
			assert.Equal(t, test.total, memory.TotalBytes)
			assert.Equal(t, test.available, memory.AvailableBytes)
			assert.Equal(t, test.source, memory.LimitSource)
		})
	}
}

func TestHostMemoryErrors(t *testing.T) {
	for text, message := range map[string]string{
		"":                                      "is missing or empty",
		"MemTotal: 0 kB\n":                      "is missing or empty",
		"MemTotal: twelve kB\n":                 "cannot read the host's memory",
		"MemTotal: 99999999999999 kB\n":         "more than any host has",
		"MemTotal: 9999999999999999999999 kB\n": "cannot read the host's memory",
	} {
		root := machine(t, map[string]string{"/proc/meminfo": text})
		_, err := OpenHost(root).Memory()
		require.ErrorContains(t, err, message, "%q", text)
		assert.Contains(t, err.Error(), filepath.Join(root, "proc"), "the message names the file")
	}
	_, err := Detect(Options{Root: filepath.Join(t.TempDir(), "absent")})
	assert.ErrorContains(t, err, "is missing or empty")
}

func TestUsableCores(t *testing.T) {
	v2 := map[string]string{"/proc/self/cgroup": "0::/a/b\n", "/proc/self/mountinfo": v2Mount}
	v1 := map[string]string{"/proc/self/cgroup": "2:cpu,cpuacct:/a\n", "/proc/self/mountinfo": v1Mounts}
	tests := []struct {
		name   string
		base   map[string]string
		extra  map[string]string
		usable float64
		source string
	}{
		{"nothing limits", nil, nil, 8, ""},
		{"affinity", nil, map[string]string{"/proc/self/status": "Cpus_allowed_list:\t0-1,5\n"}, 3, "CPU affinity or cpuset: 3 of 8 processors"},
		{"affinity wider than the host", nil, map[string]string{"/proc/self/status": "Cpus_allowed_list:\t0-127\n"}, 8, ""},
		{"affinity unknown", nil, map[string]string{"/proc/self/status": "Name:\tpython\n"}, 8, ""},
		{"affinity garbage", nil, map[string]string{"/proc/self/status": "Cpus_allowed_list:\t3-1\n"}, 8, ""},
		{"v2 quota", v2, map[string]string{"/sys/fs/cgroup/a/b/cpu.max": "250000 100000\n"}, 2.5, "/sys/fs/cgroup/a/b/cpu.max"},
		{"v2 quota of an ancestor", v2, map[string]string{"/sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "/sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 0.5, "/sys/fs/cgroup/a/cpu.max"},
		{"v2 quota wider than the host", v2, map[string]string{"/sys/fs/cgroup/a/b/cpu.max": "6400000 100000\n"}, 8, ""},
		{"v2 garbage", v2, map[string]string{"/sys/fs/cgroup/a/b/cpu.max": "1 0\n", "/sys/fs/cgroup/a/cpu.max": "\n", "/sys/fs/cgroup/cpu.max": "-1 100\n"}, 8, ""},
		{"v1 quota", v1, map[string]string{"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "150000\n", "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "50000\n"}, 3, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us"},
		{"v1 no quota", v1, map[string]string{"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n", "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, 8, ""},
		{"the smaller of quota and affinity", v2, map[string]string{"/sys/fs/cgroup/a/b/cpu.max": "400000 100000\n", "/proc/self/status": "Cpus_allowed_list:\t0-1\n"}, 2, "CPU affinity or cpuset: 2 of 8 processors"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := maps.Clone(test.base)
			if files == nil {
				files = map[string]string{}
			}
			maps.Copy(files, test.extra)
			found := hostCPU(machine(t, files))
			assert.Equal(t, test.usable, found.UsableCores)
			assert.Equal(t, test.source, found.LimitSource)
			assert.Equal(t, 8, found.LogicalCores)
			assert.Equal(t, 4, found.PhysicalCores)
			assert.Equal(t, "Test CPU @ 2.00GHz", found.Model)
		})
	}
	bare := hostCPU(machine(t, map[string]string{"/proc/cpuinfo": "", "/proc/self/status": ""}))
	assert.GreaterOrEqual(t, bare.LogicalCores, 1)
	assert.GreaterOrEqual(t, bare.UsableCores, 1.0)
	assert.Empty(t, bare.Model)
}

func FuzzCgroupTables(f *testing.F) {
	f.Add("0::/a/b\n", v2Mount)
	f.Add("4:memory:/docker/x\n2:cpu,cpuacct:/\n", v1Mounts+k8sV1Mount)
	f.Add("0::/../..\n", strings.Replace(v2Mount, " / ", " /../.. ", 1))
	f.Add("::\n\xff", " - cgroup2 \\0401 \n")
	f.Fuzz(func(t *testing.T, memberships, mountinfo string) {
		mounts := parseMounts(mountinfo)
		for _, member := range parseMemberships(memberships) {
			require.True(t, filepath.IsAbs(member.group))
			found, ok := mountOf(mounts, "memory", member.v2, member.group)
			if !ok {
				continue
			}
			groups := chain(found, member.group)
			require.LessOrEqual(t, len(groups), maxLevels+1)
			require.Equal(t, found.point, groups[len(groups)-1])
			for _, group := range groups {
				_, inside := below(found.point, group)
				require.True(t, inside, "%q leaves the mount %q", group, found.point)
				require.NotContains(t, "/"+group+"/", "/../")
			}
		}
	})
}

func FuzzCgroupValues(f *testing.F) {
	for _, seed := range []string{"max 100000", "250000 100000", "-1", "0", "18446744073709551615", "9223372036854775807 1", "1 9223372036854775807",
		"0-3,8,10-11", "0-4294967295", "inactive_file 12\n", "Cpus_allowed_list:\t0-7\n", "", "\x00", "1e309"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if limit, ok := parseLimit(text); ok {
			require.Positive(t, limit)
		}
		if cores, ok := parseQuota(text); ok {
			require.Greater(t, cores, 0.0)
			require.False(t, math.IsInf(cores, 0) || math.IsNaN(cores))
		}
		if cpus := parseCPUList(text); cpus != nil {
			count := len(cpus)
			require.GreaterOrEqual(t, count, 1)
			require.LessOrEqual(t, count, maxCPUs)
		}
		if value, ok := parseStat(text, "inactive_file"); ok {
			require.Contains(t, text, "inactive_file", "%d", value)
		}
		if value, ok := statusField(text, "Cpus_allowed_list"); ok {
			require.Equal(t, strings.TrimSpace(value), value)
		}
	})
}

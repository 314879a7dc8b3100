package media

import "syscall"

func statOf(raw *syscall.Stat_t) Stat {
	return Stat{Size: raw.Size, ModNS: raw.Mtim.Nano(), ChangeNS: raw.Ctim.Nano()}
}

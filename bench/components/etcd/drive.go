package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// drive puts fresh keys if they are absent (create-revision = 0), `batch` of them to a transaction, from `clients`
// concurrent callers over one connection each `perConnection` callers, for a time, and prints one line of JSON.
func drive(arguments []string) {
	flags := flag.NewFlagSet("drive", flag.ExitOnError)
	endpoints := flags.String("endpoints", "", "host:port,...")
	clients := flags.Int("clients", 1000, "concurrent callers")
	connections := flags.Int("connections", 10, "")
	batch := flags.Int("batch", 1, "puts in a transaction")
	seconds := flags.Float64("seconds", 5, "")
	rate := flags.Float64("rate", 0, "puts a second in all; 0: as fast as it goes")
	prefix := flags.String("prefix", "", "of the keys; another one for each run")
	_ = flags.Parse(arguments)

	conns := make([]*clientv3.Client, *connections)
	for i := range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(*endpoints, ","), DialTimeout: 10 * time.Second})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		conns[i] = c
	}
	var mutex sync.Mutex
	var latencies []float64
	done, failed := 0, 0
	begun := time.Now()
	until := begun.Add(time.Duration(*seconds * float64(time.Second)))
	var group sync.WaitGroup
	for number := 0; number < *clients; number++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			kv := conns[number%len(conns)].KV
			var own []float64
			puts, errors := 0, 0
			var gap time.Duration
			next := begun
			if *rate > 0 {
				gap = time.Duration(float64(time.Second) * float64(*clients**batch) / *rate)
				next = begun.Add(gap * time.Duration(number) / time.Duration(*clients))
			}
			for n := 0; ; n++ {
				if gap > 0 {
					time.Sleep(time.Until(next))
				}
				started := time.Now()
				if gap > 0 {
					started = next // open loop: what waits behind a slow one counts too
					next = next.Add(gap)
				}
				if started.After(until) || time.Now().After(until) {
					break
				}
				if err := put(kv, *prefix, number, n, *batch); err != nil {
					errors++
					continue
				}
				own = append(own, float64(time.Since(started))/1e6)
				puts += *batch
			}
			mutex.Lock()
			latencies = append(latencies, own...)
			done += puts
			failed += errors
			mutex.Unlock()
		}(number)
	}
	group.Wait()
	took := time.Since(begun).Seconds()
	sort.Float64s(latencies)
	at := func(share float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		return latencies[int(share*float64(len(latencies)-1))]
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"ids": done, "failed": failed, "seconds": took, "p50_ms": at(0.5), "p99_ms": at(0.99),
	})
}

func put(kv clientv3.KV, prefix string, number, n, batch int) error {
	compares := make([]clientv3.Cmp, batch)
	puts := make([]clientv3.Op, batch)
	for i := range puts {
		key := fmt.Sprintf("%s/%06d/%09d", prefix, number, n*batch+i) // 16 to 24 bytes, like a digest
		compares[i] = clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		puts[i] = clientv3.OpPut(key, "01234567")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := kv.Txn(ctx).If(compares...).Then(puts...).Commit()
	return err
}

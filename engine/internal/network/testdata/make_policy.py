"""Golden values of the policy from independent code: python make_policy.py in this
folder (needs scipy, torch).

The uniforms are chacha8rand's (c2sp.org/chacha8rand), written out here; the normal quantiles are
scipy's; the log-likelihood is torch.distributions'.
"""

import json
import struct

import numpy as np
import torch
from scipy.special import ndtri


def chacha8rand(key):
    """The 64-bit words of chacha8rand with a 32-byte key."""
    rotate = lambda x, n: (x << np.uint32(n)) | (x >> np.uint32(32 - n))

    def quarter(b, i, j, k, l):
        for x, y, z, n in ((i, j, l, 16), (k, l, j, 12), (i, j, l, 8), (k, l, j, 7)):
            b[x] = b[x] + b[y]
            b[z] = rotate(b[z] ^ b[x], n)

    while True:
        words, out = np.frombuffer(key, "<u4"), b""
        for counter in range(0, 16, 4):
            b = [np.full(4, c, np.uint32) for c in (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)]
            b += [np.full(4, w, np.uint32) for w in words]
            b += [np.arange(counter, counter + 4, dtype=np.uint32)] + [
                np.zeros(4, np.uint32) for _ in range(3)
            ]
            for _ in range(4):
                for column in range(4):
                    quarter(b, column, 4 + column, 8 + column, 12 + column)
                for column in range(4):
                    quarter(
                        b, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4
                    )
            for i, w in enumerate(words):
                b[4 + i] = b[4 + i] + w
            out += b"".join(row.astype("<u4").tobytes() for row in b)
        key = out[-32:]
        yield from struct.unpack("<124Q", out[:-32])


def epsilon(seed, step, trajectory, n):
    key = b"morphseek epsilon" + struct.pack("<QBI", seed, step, trajectory)
    words = chacha8rand(key.ljust(32, b"\0"))
    return [float(np.float32(ndtri(((next(words) >> 12) + 0.5) / 2**52))) for _ in range(n)]


def main():
    draws = [(0, 0, 1, 300), (0, 0, 2, 4), (0, 1, 1, 4), (1, 0, 1, 4), (2**64 - 1, 15, 63, 4)]
    p = np.concatenate(
        [np.logspace(-300, -1, 60), np.linspace(0.01, 0.99, 99), 1 - np.logspace(-15, -1, 30)]
    )
    torch.manual_seed(3)
    eps, log_sigma = torch.randn(50), torch.randn(50)
    tau = 1.7
    mu = torch.randn(50)
    normal = torch.distributions.Normal(mu.double(), tau * log_sigma.double().exp())
    z = mu.double() + tau * log_sigma.double().exp() * eps.double()
    rewards = np.array([0.3, -1.2, 0.7, 0.7])
    json.dump(
        {
            "epsilon": [
                {"seed": s, "step": t, "trajectory": j, "values": epsilon(s, t, j, n)}
                for s, t, j, n in draws
            ],
            "quantile": {"p": p.tolist(), "x": ndtri(p).tolist()},
            "log_likelihood": {
                "epsilon": eps.tolist(),
                "log_sigma": log_sigma.tolist(),
                "tau": tau,
                "value": normal.log_prob(z).sum().item(),
            },
            "advantages": {
                "rewards": rewards.tolist(),
                "values": ((rewards - rewards.mean()) / (rewards.std() + 1e-8)).tolist(),
            },
        },
        open("policy.json", "w"),
    )


if __name__ == "__main__":
    np.seterr(over="ignore")
    main()

/* The kernels of PolyBench/C 4.2.1 that run step by step, loops as they stand there; arrays in C order, in place. */
#include <math.h>
#define IN(i, low, high) for (long i = (low); i < (high); i++)

void jacobi_1d(long n, long t, double *restrict A, double *restrict B) {
  IN(s, 0, t) {
    IN(i, 1, n - 1) B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1]);
    IN(i, 1, n - 1) A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1]);
  }
}
void jacobi_2d(long n, long t, double A[restrict n][n], double B[restrict n][n]) {
  IN(s, 0, t) {
    IN(i, 1, n - 1) IN(j, 1, n - 1) B[i][j] = 0.2 * (A[i][j] + A[i][j - 1] + A[i][1 + j] + A[1 + i][j] + A[i - 1][j]);
    IN(i, 1, n - 1) IN(j, 1, n - 1) A[i][j] = 0.2 * (B[i][j] + B[i][j - 1] + B[i][1 + j] + B[1 + i][j] + B[i - 1][j]);
  }
}
void heat_3d(long n, long t, double A[restrict n][n][n], double B[restrict n][n][n]) {
#define HEAT(X, Y) Y[i][j][k] = 0.125 * (X[i + 1][j][k] - 2.0 * X[i][j][k] + X[i - 1][j][k]) \
    + 0.125 * (X[i][j + 1][k] - 2.0 * X[i][j][k] + X[i][j - 1][k]) \
    + 0.125 * (X[i][j][k + 1] - 2.0 * X[i][j][k] + X[i][j][k - 1]) + X[i][j][k];
  IN(s, 0, t) {
    IN(i, 1, n - 1) IN(j, 1, n - 1) IN(k, 1, n - 1) HEAT(A, B)
    IN(i, 1, n - 1) IN(j, 1, n - 1) IN(k, 1, n - 1) HEAT(B, A)
  }
}
void seidel_2d(long n, long t, double A[n][n]) {
  IN(s, 0, t) IN(i, 1, n - 1) IN(j, 1, n - 1)
    A[i][j] = (A[i - 1][j - 1] + A[i - 1][j] + A[i - 1][j + 1] + A[i][j - 1] + A[i][j] + A[i][j + 1]
             + A[i + 1][j - 1] + A[i + 1][j] + A[i + 1][j + 1]) / 9.0;
}
void fdtd_2d(long nx, long ny, long t, double ex[restrict nx][ny], double ey[restrict nx][ny], double hz[restrict nx][ny],
             const double *restrict source) {
  IN(s, 0, t) {
    IN(j, 0, ny) ey[0][j] = source[s];
    IN(i, 1, nx) IN(j, 0, ny) ey[i][j] = ey[i][j] - 0.5 * (hz[i][j] - hz[i - 1][j]);
    IN(i, 0, nx) IN(j, 1, ny) ex[i][j] = ex[i][j] - 0.5 * (hz[i][j] - hz[i][j - 1]);
    IN(i, 0, nx - 1) IN(j, 0, ny - 1) hz[i][j] = hz[i][j] - 0.7 * (ex[i][j + 1] - ex[i][j] + ey[i + 1][j] - ey[i][j]);
  }
}
void adi(long n, long t, double u[restrict n][n], double v[restrict n][n], double p[restrict n][n], double q[restrict n][n]) {
  double dx = 1.0 / n, dt = 1.0 / t, a = -dt / (dx * dx), b = 1.0 - 2.0 * a, c = a, d = a / 2.0, e = 1.0 - 2.0 * d, f = d;
  IN(s, 0, t) {
    IN(i, 1, n - 1) {
      v[0][i] = 1.0, p[i][0] = 0.0, q[i][0] = v[0][i];
      IN(j, 1, n - 1) {
        p[i][j] = -c / (a * p[i][j - 1] + b);
        q[i][j] = (-d * u[j][i - 1] + (1.0 + 2.0 * d) * u[j][i] - f * u[j][i + 1] - a * q[i][j - 1]) / (a * p[i][j - 1] + b);
      }
      v[n - 1][i] = 1.0;
      for (long j = n - 2; j >= 1; j--) v[j][i] = p[i][j] * v[j + 1][i] + q[i][j];
    }
    IN(i, 1, n - 1) {
      u[i][0] = 1.0, p[i][0] = 0.0, q[i][0] = u[i][0];
      IN(j, 1, n - 1) {
        p[i][j] = -f / (d * p[i][j - 1] + e);
        q[i][j] = (-a * v[i - 1][j] + (1.0 + 2.0 * a) * v[i][j] - c * v[i + 1][j] - d * q[i][j - 1]) / (d * p[i][j - 1] + e);
      }
      u[i][n - 1] = 1.0;
      for (long j = n - 2; j >= 1; j--) u[i][j] = p[i][j] * u[i][j + 1] + q[i][j];
    }
  }
}
void floyd_warshall(long n, int paths[n][n]) {
  IN(k, 0, n) IN(i, 0, n) IN(j, 0, n)
    paths[i][j] = paths[i][j] < paths[i][k] + paths[k][j] ? paths[i][j] : paths[i][k] + paths[k][j];
}
void nussinov(long n, const int *restrict seq, int table[restrict n][n]) {
#define MOST(a, b) ((a) >= (b) ? (a) : (b))
  for (long i = n - 1; i >= 0; i--) IN(j, i + 1, n) {
    if (j - 1 >= 0) table[i][j] = MOST(table[i][j], table[i][j - 1]);
    if (i + 1 < n) table[i][j] = MOST(table[i][j], table[i + 1][j]);
    if (j - 1 >= 0 && i + 1 < n)
      table[i][j] = MOST(table[i][j], table[i + 1][j - 1] + (i < j - 1 && seq[i] + seq[j] == 3));
    IN(k, i + 1, j) table[i][j] = MOST(table[i][j], table[i][k] + table[k + 1][j]);
  }
}
void deriche(long w, long h, float alpha, const float x[restrict w][h], float out[restrict w][h], float y1[restrict w][h],
             float y2[restrict w][h]) {
  float k = (1.f - expf(-alpha)) * (1.f - expf(-alpha)) / (1.f + 2.f * alpha * expf(-alpha) - expf(2.f * alpha));
  float a1 = k, a2 = k * expf(-alpha) * (alpha - 1.f), a3 = k * expf(-alpha) * (alpha + 1.f), a4 = -k * expf(-2.f * alpha);
  float b1 = powf(2.f, -alpha), b2 = -expf(-2.f * alpha);
  IN(i, 0, w) {
    float ym1 = 0, ym2 = 0, xm1 = 0;
    IN(j, 0, h) {
      y1[i][j] = a1 * x[i][j] + a2 * xm1 + b1 * ym1 + b2 * ym2;
      xm1 = x[i][j], ym2 = ym1, ym1 = y1[i][j];
    }
  }
  IN(i, 0, w) {
    float yp1 = 0, yp2 = 0, xp1 = 0, xp2 = 0;
    for (long j = h - 1; j >= 0; j--) {
      y2[i][j] = a3 * xp1 + a4 * xp2 + b1 * yp1 + b2 * yp2;
      xp2 = xp1, xp1 = x[i][j], yp2 = yp1, yp1 = y2[i][j];
    }
  }
  IN(i, 0, w) IN(j, 0, h) out[i][j] = y1[i][j] + y2[i][j];
  IN(j, 0, h) {
    float tm1 = 0, ym1 = 0, ym2 = 0;
    IN(i, 0, w) {
      y1[i][j] = a1 * out[i][j] + a2 * tm1 + b1 * ym1 + b2 * ym2;
      tm1 = out[i][j], ym2 = ym1, ym1 = y1[i][j];
    }
  }
  IN(j, 0, h) {
    float tp1 = 0, tp2 = 0, yp1 = 0, yp2 = 0;
    for (long i = w - 1; i >= 0; i--) {
      y2[i][j] = a3 * tp1 + a4 * tp2 + b1 * yp1 + b2 * yp2;
      tp2 = tp1, tp1 = out[i][j], yp2 = yp1, yp1 = y2[i][j];
    }
  }
  IN(i, 0, w) IN(j, 0, h) out[i][j] = y1[i][j] + y2[i][j];
}
void cholesky(long n, double A[n][n]) {
  IN(i, 0, n) {
    IN(j, 0, i) {
      IN(k, 0, j) A[i][j] -= A[i][k] * A[j][k];
      A[i][j] /= A[j][j];
    }
    IN(k, 0, i) A[i][i] -= A[i][k] * A[i][k];
    A[i][i] = sqrt(A[i][i]);
  }
}
void durbin(long n, const double *restrict r, double *restrict y, double *restrict z) {
  double beta = 1.0, alpha = -r[0];
  y[0] = -r[0];
  IN(k, 1, n) {
    double sum = 0.0;
    beta = (1 - alpha * alpha) * beta;
    IN(i, 0, k) sum += r[k - i - 1] * y[i];
    alpha = -(r[k] + sum) / beta;
    IN(i, 0, k) z[i] = y[i] + alpha * y[k - i - 1];
    IN(i, 0, k) y[i] = z[i];
    y[k] = alpha;
  }
}
void gramschmidt(long m, long n, double A[restrict m][n], double R[restrict n][n], double Q[restrict m][n]) {
  IN(k, 0, n) {
    double nrm = 0.0;
    IN(i, 0, m) nrm += A[i][k] * A[i][k];
    R[k][k] = sqrt(nrm);
    IN(i, 0, m) Q[i][k] = A[i][k] / R[k][k];
    IN(j, k + 1, n) {
      R[k][j] = 0.0;
      IN(i, 0, m) R[k][j] += Q[i][k] * A[i][j];
      IN(i, 0, m) A[i][j] = A[i][j] - Q[i][k] * R[k][j];
    }
  }
}
void lu(long n, double A[n][n]) {
  IN(i, 0, n) {
    IN(j, 0, i) {
      IN(k, 0, j) A[i][j] -= A[i][k] * A[k][j];
      A[i][j] /= A[j][j];
    }
    IN(j, i, n) IN(k, 0, i) A[i][j] -= A[i][k] * A[k][j];
  }
}
void ludcmp(long n, double A[restrict n][n], const double *restrict b, double *restrict x, double *restrict y) {
  IN(i, 0, n) {
    IN(j, 0, i) {
      double w = A[i][j];
      IN(k, 0, j) w -= A[i][k] * A[k][j];
      A[i][j] = w / A[j][j];
    }
    IN(j, i, n) {
      double w = A[i][j];
      IN(k, 0, i) w -= A[i][k] * A[k][j];
      A[i][j] = w;
    }
  }
  IN(i, 0, n) {
    double w = b[i];
    IN(j, 0, i) w -= A[i][j] * y[j];
    y[i] = w;
  }
  for (long i = n - 1; i >= 0; i--) {
    double w = y[i];
    IN(j, i + 1, n) w -= A[i][j] * x[j];
    x[i] = w / A[i][i];
  }
}
void trisolv(long n, const double L[restrict n][n], double *restrict x, const double *restrict b) {
  IN(i, 0, n) {
    x[i] = b[i];
    IN(j, 0, i) x[i] -= L[i][j] * x[j];
    x[i] = x[i] / L[i][i];
  }
}

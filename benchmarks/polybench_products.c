/* The kernels of PolyBench/C 4.2.1 that need no steps, loops as they stand there; arrays in C order, in place. */
#include <math.h>
#define IN(i, low, high) for (long i = (low); i < (high); i++)

void correlation(long m, long n, double data[restrict n][m], double corr[restrict m][m], double *restrict mean,
                 double *restrict stddev) {
  IN(j, 0, m) {
    mean[j] = 0.0;
    IN(i, 0, n) mean[j] += data[i][j];
    mean[j] /= n;
  }
  IN(j, 0, m) {
    stddev[j] = 0.0;
    IN(i, 0, n) stddev[j] += (data[i][j] - mean[j]) * (data[i][j] - mean[j]);
    stddev[j] = sqrt(stddev[j] / n);
    stddev[j] = stddev[j] <= 0.1 ? 1.0 : stddev[j];
  }
  IN(i, 0, n) IN(j, 0, m) {
    data[i][j] -= mean[j];
    data[i][j] /= sqrt((double)n) * stddev[j];
  }
  IN(i, 0, m - 1) {
    corr[i][i] = 1.0;
    IN(j, i + 1, m) {
      corr[i][j] = 0.0;
      IN(k, 0, n) corr[i][j] += data[k][i] * data[k][j];
      corr[j][i] = corr[i][j];
    }
  }
  corr[m - 1][m - 1] = 1.0;
}
void covariance(long m, long n, double data[restrict n][m], double cov[restrict m][m], double *restrict mean) {
  IN(j, 0, m) {
    mean[j] = 0.0;
    IN(i, 0, n) mean[j] += data[i][j];
    mean[j] /= n;
  }
  IN(i, 0, n) IN(j, 0, m) data[i][j] -= mean[j];
  IN(i, 0, m) IN(j, i, m) {
    cov[i][j] = 0.0;
    IN(k, 0, n) cov[i][j] += data[k][i] * data[k][j];
    cov[i][j] /= n - 1.0;
    cov[j][i] = cov[i][j];
  }
}
void gemm(long ni, long nj, long nk, double alpha, double beta, double C[restrict ni][nj], const double A[restrict ni][nk],
          const double B[restrict nk][nj]) {
  IN(i, 0, ni) {
    IN(j, 0, nj) C[i][j] *= beta;
    IN(k, 0, nk) IN(j, 0, nj) C[i][j] += alpha * A[i][k] * B[k][j];
  }
}
void gemver(long n, double alpha, double beta, double A[restrict n][n], const double *restrict u1,
            const double *restrict v1, const double *restrict u2, const double *restrict v2, const double *restrict y,
            const double *restrict z, double *restrict x, double *restrict w) {
  IN(i, 0, n) IN(j, 0, n) A[i][j] = A[i][j] + u1[i] * v1[j] + u2[i] * v2[j];
  IN(i, 0, n) IN(j, 0, n) x[i] = x[i] + beta * A[j][i] * y[j];
  IN(i, 0, n) x[i] = x[i] + z[i];
  IN(i, 0, n) IN(j, 0, n) w[i] = w[i] + alpha * A[i][j] * x[j];
}
void gesummv(long n, double alpha, double beta, const double A[restrict n][n], const double B[restrict n][n],
             const double *restrict x, double *restrict tmp, double *restrict y) {
  IN(i, 0, n) {
    tmp[i] = 0.0, y[i] = 0.0;
    IN(j, 0, n) {
      tmp[i] = A[i][j] * x[j] + tmp[i];
      y[i] = B[i][j] * x[j] + y[i];
    }
    y[i] = alpha * tmp[i] + beta * y[i];
  }
}
void symm(long m, long n, double alpha, double beta, double C[restrict m][n], const double A[restrict m][m],
          const double B[restrict m][n]) {
  IN(i, 0, m) IN(j, 0, n) {
    double sum = 0;
    IN(k, 0, i) {
      C[k][j] += alpha * B[i][j] * A[i][k];
      sum += B[k][j] * A[i][k];
    }
    C[i][j] = beta * C[i][j] + alpha * B[i][j] * A[i][i] + alpha * sum;
  }
}
void syr2k(long n, long m, double alpha, double beta, double C[restrict n][n], const double A[restrict n][m],
           const double B[restrict n][m]) {
  IN(i, 0, n) {
    IN(j, 0, i + 1) C[i][j] *= beta;
    IN(k, 0, m) IN(j, 0, i + 1) C[i][j] += A[j][k] * alpha * B[i][k] + B[j][k] * alpha * A[i][k];
  }
}
void syrk(long n, long m, double alpha, double beta, double C[restrict n][n], const double A[restrict n][m]) {
  IN(i, 0, n) {
    IN(j, 0, i + 1) C[i][j] *= beta;
    IN(k, 0, m) IN(j, 0, i + 1) C[i][j] += alpha * A[i][k] * A[j][k];
  }
}
void trmm(long m, long n, double alpha, const double A[restrict m][m], double B[restrict m][n]) {
  IN(i, 0, m) IN(j, 0, n) {
    IN(k, i + 1, m) B[i][j] += A[k][i] * B[k][j];
    B[i][j] = alpha * B[i][j];
  }
}
void mm2(long ni, long nj, long nk, long nl, double alpha, double beta, const double A[restrict ni][nk],
         const double B[restrict nk][nj], const double C[restrict nj][nl], double D[restrict ni][nl],
         double tmp[restrict ni][nj]) {
  IN(i, 0, ni) IN(j, 0, nj) {
    tmp[i][j] = 0.0;
    IN(k, 0, nk) tmp[i][j] += alpha * A[i][k] * B[k][j];
  }
  IN(i, 0, ni) IN(j, 0, nl) {
    D[i][j] *= beta;
    IN(k, 0, nj) D[i][j] += tmp[i][k] * C[k][j];
  }
}
void mm3(long ni, long nj, long nk, long nl, long nm, const double A[restrict ni][nk], const double B[restrict nk][nj],
         const double C[restrict nj][nm], const double D[restrict nm][nl], double E[restrict ni][nj],
         double F[restrict nj][nl], double G[restrict ni][nl]) {
  IN(i, 0, ni) IN(j, 0, nj) {
    E[i][j] = 0.0;
    IN(k, 0, nk) E[i][j] += A[i][k] * B[k][j];
  }
  IN(i, 0, nj) IN(j, 0, nl) {
    F[i][j] = 0.0;
    IN(k, 0, nm) F[i][j] += C[i][k] * D[k][j];
  }
  IN(i, 0, ni) IN(j, 0, nl) {
    G[i][j] = 0.0;
    IN(k, 0, nj) G[i][j] += E[i][k] * F[k][j];
  }
}
void atax(long m, long n, const double A[restrict m][n], const double *restrict x, double *restrict y,
          double *restrict tmp) {
  IN(i, 0, n) y[i] = 0;
  IN(i, 0, m) {
    tmp[i] = 0.0;
    IN(j, 0, n) tmp[i] = tmp[i] + A[i][j] * x[j];
    IN(j, 0, n) y[j] = y[j] + A[i][j] * tmp[i];
  }
}
void bicg(long m, long n, const double A[restrict n][m], const double *restrict p, const double *restrict r,
          double *restrict s, double *restrict q) {
  IN(i, 0, m) s[i] = 0;
  IN(i, 0, n) {
    q[i] = 0.0;
    IN(j, 0, m) {
      s[j] = s[j] + r[i] * A[i][j];
      q[i] = q[i] + A[i][j] * p[j];
    }
  }
}
void doitgen(long nr, long nq, long np, double A[restrict nr][nq][np], const double C4[restrict np][np],
             double *restrict sum) {
  IN(r, 0, nr) IN(q, 0, nq) {
    IN(p, 0, np) {
      sum[p] = 0.0;
      IN(s, 0, np) sum[p] += A[r][q][s] * C4[s][p];
    }
    IN(p, 0, np) A[r][q][p] = sum[p];
  }
}
void mvt(long n, double *restrict x1, double *restrict x2, const double *restrict y1, const double *restrict y2,
         const double A[restrict n][n]) {
  IN(i, 0, n) IN(j, 0, n) x1[i] = x1[i] + A[i][j] * y1[j];
  IN(i, 0, n) IN(j, 0, n) x2[i] = x2[i] + A[j][i] * y2[j];
}
